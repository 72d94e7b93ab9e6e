// Holds python/src/xla_abi.hpp against the header that jaxlib brings: compiled by test_jax_abi.py.
#include "xla_abi.hpp"

#include <cstddef>
#include <type_traits>

#include "xla/ffi/api/c_api.h"

namespace ours = redblue::python::xla;

// Equal places of equal size, and equal kinds of type: numbers, pointers, functions, structs.
#define SAME_FIELD(our, field, their, their_field)                                                                 \
  static_assert(offsetof(ours::our, field) == offsetof(their, their_field));                                       \
  static_assert(sizeof(ours::our::field) == sizeof(their::their_field));                                           \
  static_assert(std::is_pointer_v<decltype(ours::our::field)> == std::is_pointer_v<decltype(their::their_field)>); \
  static_assert(std::is_class_v<decltype(ours::our::field)> == std::is_class_v<decltype(their::their_field)>)
#define SAME_SIZE(our, their) static_assert(sizeof(ours::our) == sizeof(their))
#define SAME_NUMBER(our, their) static_assert(static_cast<int>(ours::our) == static_cast<int>(their))

static_assert(ours::kMajor == XLA_FFI_API_MAJOR, "another XLA: compare xla_abi.hpp with its c_api.h by eye");
static_assert(XLA_FFI_API_MINOR >= 1 && XLA_FFI_API_MINOR <= ours::kMinor,
              "a newer XLA: compare xla_abi.hpp with its c_api.h by eye, then raise kMinor");

SAME_SIZE(Extension, XLA_FFI_Extension_Base);
SAME_FIELD(Extension, struct_size, XLA_FFI_Extension_Base, struct_size);
SAME_FIELD(Extension, type, XLA_FFI_Extension_Base, type);
SAME_FIELD(Extension, next, XLA_FFI_Extension_Base, next);
SAME_NUMBER(kMetadata, XLA_FFI_Extension_Metadata);

SAME_SIZE(Version, XLA_FFI_Api_Version);
SAME_FIELD(Version, struct_size, XLA_FFI_Api_Version, struct_size);
SAME_FIELD(Version, extensions, XLA_FFI_Api_Version, extension_start);
SAME_FIELD(Version, major, XLA_FFI_Api_Version, major_version);
SAME_FIELD(Version, minor, XLA_FFI_Api_Version, minor_version);

SAME_SIZE(Code, XLA_FFI_Error_Code);
SAME_NUMBER(Code::invalid_argument, XLA_FFI_Error_Code_INVALID_ARGUMENT);
SAME_NUMBER(Code::resource_exhausted, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED);
SAME_NUMBER(Code::unimplemented, XLA_FFI_Error_Code_UNIMPLEMENTED);
SAME_NUMBER(Code::internal, XLA_FFI_Error_Code_INTERNAL);

SAME_SIZE(NewError, XLA_FFI_Error_Create_Args);
SAME_FIELD(NewError, struct_size, XLA_FFI_Error_Create_Args, struct_size);
SAME_FIELD(NewError, extensions, XLA_FFI_Error_Create_Args, extension_start);
SAME_FIELD(NewError, message, XLA_FFI_Error_Create_Args, message);
SAME_FIELD(NewError, code, XLA_FFI_Error_Create_Args, errc);
static_assert(XLA_FFI_Error_Create_Args_STRUCT_SIZE <= sizeof(ours::NewError));

SAME_SIZE(Type, XLA_FFI_DataType);
SAME_NUMBER(Type::pred, XLA_FFI_DataType_PRED);
SAME_NUMBER(Type::s32, XLA_FFI_DataType_S32);
SAME_NUMBER(Type::s64, XLA_FFI_DataType_S64);
SAME_NUMBER(Type::u32, XLA_FFI_DataType_U32);
SAME_NUMBER(Type::u64, XLA_FFI_DataType_U64);
SAME_NUMBER(Type::f16, XLA_FFI_DataType_F16);
SAME_NUMBER(Type::f32, XLA_FFI_DataType_F32);
SAME_NUMBER(Type::f64, XLA_FFI_DataType_F64);
SAME_NUMBER(Type::bf16, XLA_FFI_DataType_BF16);

SAME_FIELD(Buffer, struct_size, XLA_FFI_Buffer, struct_size);
SAME_FIELD(Buffer, extensions, XLA_FFI_Buffer, extension_start);
SAME_FIELD(Buffer, type, XLA_FFI_Buffer, dtype);
SAME_FIELD(Buffer, data, XLA_FFI_Buffer, data);
SAME_FIELD(Buffer, rank, XLA_FFI_Buffer, rank);
SAME_FIELD(Buffer, dims, XLA_FFI_Buffer, dims);
SAME_NUMBER(kBuffer, XLA_FFI_ArgType_BUFFER);
SAME_NUMBER(kBuffer, XLA_FFI_RetType_BUFFER);

SAME_SIZE(Bytes, XLA_FFI_ByteSpan);
SAME_FIELD(Bytes, data, XLA_FFI_ByteSpan, ptr);
SAME_FIELD(Bytes, size, XLA_FFI_ByteSpan, len);
SAME_NUMBER(kString, XLA_FFI_AttrType_STRING);

SAME_SIZE(Values, XLA_FFI_Args);
SAME_FIELD(Values, size, XLA_FFI_Args, size);
SAME_FIELD(Values, types, XLA_FFI_Args, types);
SAME_FIELD(Values, values, XLA_FFI_Args, args);
static_assert(sizeof(XLA_FFI_ArgType) == sizeof(int));

SAME_SIZE(Values, XLA_FFI_Rets);
SAME_FIELD(Values, size, XLA_FFI_Rets, size);
SAME_FIELD(Values, types, XLA_FFI_Rets, types);
SAME_FIELD(Values, values, XLA_FFI_Rets, rets);
static_assert(sizeof(XLA_FFI_RetType) == sizeof(int));

SAME_SIZE(Attributes, XLA_FFI_Attrs);
SAME_FIELD(Attributes, size, XLA_FFI_Attrs, size);
SAME_FIELD(Attributes, types, XLA_FFI_Attrs, types);
SAME_FIELD(Attributes, names, XLA_FFI_Attrs, names);
SAME_FIELD(Attributes, values, XLA_FFI_Attrs, attrs);
static_assert(sizeof(XLA_FFI_AttrType) == sizeof(int));

// Tables and calls may grow at their end.
SAME_FIELD(Api, struct_size, XLA_FFI_Api, struct_size);
SAME_FIELD(Api, extensions, XLA_FFI_Api, extension_start);
SAME_FIELD(Api, version, XLA_FFI_Api, api_version);
SAME_FIELD(Api, internal, XLA_FFI_Api, internal_api);
SAME_FIELD(Api, new_error, XLA_FFI_Api, XLA_FFI_Error_Create);

SAME_FIELD(Call, struct_size, XLA_FFI_CallFrame, struct_size);
SAME_FIELD(Call, extensions, XLA_FFI_CallFrame, extension_start);
SAME_FIELD(Call, api, XLA_FFI_CallFrame, api);
SAME_FIELD(Call, context, XLA_FFI_CallFrame, ctx);
SAME_FIELD(Call, stage, XLA_FFI_CallFrame, stage);
SAME_FIELD(Call, arguments, XLA_FFI_CallFrame, args);
SAME_FIELD(Call, results, XLA_FFI_CallFrame, rets);
SAME_FIELD(Call, attributes, XLA_FFI_CallFrame, attrs);

SAME_FIELD(Metadata, struct_size, XLA_FFI_Metadata, struct_size);
SAME_FIELD(Metadata, version, XLA_FFI_Metadata, api_version);
SAME_SIZE(MetadataExtension, XLA_FFI_Metadata_Extension);
SAME_FIELD(MetadataExtension, base, XLA_FFI_Metadata_Extension, extension_base);
SAME_FIELD(MetadataExtension, metadata, XLA_FFI_Metadata_Extension, metadata);
