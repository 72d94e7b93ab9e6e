#include "dlpack.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace redblue::python {

namespace {

/// The parts of DLPack's interface, version 1, that are used here, as its header lays them out.
namespace dlpack {

struct Version {
  std::uint32_t major, minor;
};
struct DataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct Tensor {
  void* data;
  std::int32_t device[2];
  std::int32_t dimensions;
  DataType type;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};
struct Exchange {
  Version version;
  Exchange* previous;
  void (*allocate)();
  void (*take)();
  void (*give)();
  int (*look)(void* object, Tensor* out);  ///< fills in a tensor that stays its owner's; -1: an exception is set
  void (*stream)();
};

}  // namespace dlpack

struct Known {
  PyObject* type = nullptr;
  const dlpack::Exchange* exchange = nullptr;
};
Known known;  // written and read by threads that hold the GIL

DType dtype_of(dlpack::DataType type, SlowArray name) {
  constexpr std::uint8_t kInt = 0, kFloat = 2, kBfloat = 4, kBool = 6;
  if (type.lanes == 1) {
    if (type.code == kFloat && type.bits == 64) return DType::f64;
    if (type.code == kFloat && type.bits == 32) return DType::f32;
    if (type.code == kFloat && type.bits == 16) return DType::f16;
    if (type.code == kBfloat && type.bits == 16) return DType::bf16;
    if (type.code == kBool && type.bits == 8) return DType::boolean;
    if (type.code == kInt && type.bits == 8) return DType::int8;
  }
  refuse_type(name, fmt::format("{} with {} bits (DLPack's numbers)", type.code, type.bits));
}

/// Refuses a tensor of another device than the CPU.
void require_cpu(nb::handle array) {
  if (nb::cast<bool>(nb::getattr(array, "is_cpu", nb::bool_(true)))) return;
  throw nb::type_error(fmt::format("a tensor is on device {}: redblue runs on the CPU; move it there with .cpu()",
                                   nb::str(nb::object(array.attr("device"))).c_str())
                           .c_str());
}

}  // namespace

bool read_by_exchange(nb::handle type) {
  constexpr const char* kName = "dlpack_exchange_api";
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (PyCapsule_IsValid(capsule.ptr(), kName) == 0) return false;
  const auto* exchange = static_cast<const dlpack::Exchange*>(PyCapsule_GetPointer(capsule.ptr(), kName));
  while (exchange != nullptr && exchange->version.major != 1) exchange = exchange->previous;
  if (exchange == nullptr || exchange->look == nullptr) return false;
  known = {type.ptr(), exchange};
  return true;
}

bool is_exchanged(nb::handle array) { return array.type().ptr() == known.type; }

Given from_exchange(nb::handle array, SlowArray name) {
  dlpack::Tensor t{};
  if (known.exchange->look(array.ptr(), &t) != 0) {
    if (PyErr_ExceptionMatches(PyExc_MemoryError) != 0) throw nb::python_error();
    PyErr_Clear();  // a page of torch's own frames
    require_cpu(array);
    throw nb::type_error(fmt::format("{} has no dense memory of its own: give a plain tensor, as .to_dense() makes it",
                                     tensor_name(name))
                             .c_str());
  }
  constexpr int kCpu = 1;
  if (t.device[0] != kCpu) require_cpu(array);
  require_dimensions(name, t.dimensions);
  Given g{.data = static_cast<char*>(t.data) + t.byte_offset,
          .dtype = dtype_of(t.type, name),
          .dimensions = static_cast<std::size_t>(t.dimensions)};
  std::copy_n(t.shape, g.dimensions, g.shape.begin());
  std::copy_n(t.strides, g.dimensions, g.strides.begin());
  return g;
}

}  // namespace redblue::python
