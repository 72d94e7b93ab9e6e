#pragma once
#include <cstddef>
#include <cstdint>

/// What a handler needs of the C interface between XLA and its custom calls, XLA_FFI_* of xla/ffi/api/c_api.h, in words
/// of our own: that header comes with jaxlib alone. tests/python/frameworks/test_jax_abi.py holds sizes, offsets and
/// numbers against the header of the jaxlib that is installed. They are the same from jaxlib 0.5.0 (version 0.1 of the
/// interface) to 0.10.2 (0.3).
namespace redblue::python::xla {

inline constexpr int kMajor = 0, kMinor = 3;  ///< the newest version that was compared with this text

struct Error;    // of XLA
struct Context;  // of XLA

struct Extension {
  std::size_t struct_size;
  int type;
  Extension* next;
};
inline constexpr int kMetadata = 1;  ///< the type of a MetadataExtension

struct Version {
  std::size_t struct_size;
  Extension* extensions;
  int major, minor;
};

enum class Code : int { invalid_argument = 3, resource_exhausted = 8, unimplemented = 12, internal = 13 };

struct NewError {
  std::size_t struct_size;
  Extension* extensions;
  const char* message;  ///< is copied
  Code code;
};

enum class Type : int { pred = 1, s32 = 4, s64 = 5, u32 = 8, u64 = 9, f16 = 10, f32 = 11, f64 = 12, bf16 = 16 };

/// Dense, the last dimension side by side.
struct Buffer {
  std::size_t struct_size;
  Extension* extensions;
  Type type;
  void* data;
  std::int64_t rank;
  std::int64_t* dims;
};
inline constexpr int kBuffer = 1;  ///< the type of an argument or a result that is a Buffer

struct Bytes {
  const char* data;
  std::size_t size;
};
inline constexpr int kString = 4;  ///< the type of an attribute that is Bytes

/// Arguments, or results.
struct Values {
  std::size_t struct_size;
  Extension* extensions;
  std::int64_t size;
  int* types;
  void** values;
};

struct Attributes {
  std::size_t struct_size;
  Extension* extensions;
  std::int64_t size;
  int* types;
  Bytes** names;
  void** values;
};

/// The beginning of the table of XLA's functions.
struct Api {
  std::size_t struct_size;
  Extension* extensions;
  Version version;
  const void* internal;
  Error* (*new_error)(NewError*);
};

/// The beginning of a call.
struct Call {
  std::size_t struct_size;
  Extension* extensions;
  const Api* api;  ///< null where XLA 0.1 asks for metadata
  Context* context;
  int stage;
  Values arguments, results;
  Attributes attributes;
};

/// The beginning of what XLA asks of a handler before it calls it.
struct Metadata {
  std::size_t struct_size;
  Version version;
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

}  // namespace redblue::python::xla
