#pragma once
#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <string_view>

#include "redblue/attention.hpp"

/// Python's arrays as tensors [batch, heads, sequence, features].
namespace redblue::python {

namespace nb = nanobind;

/// Holds the buffers of the arrays of one call, and gives them back at the end.
class Buffers {
 public:
  Buffers() = default;
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers() {
    for (std::size_t i = 0; i < used_; ++i) PyBuffer_Release(&list_[i]);
  }
  Py_buffer& next() { return list_[used_]; }
  void keep() { ++used_; }

 private:
  std::array<Py_buffer, kSlowArrays> list_;
  std::size_t used_ = 0;
};

/// What the dimensions of an array are.
enum class Form {
  heads_first,   ///< ... [batch,] heads, sequence, features
  tokens_first,  ///< [batch,] sequence, heads, features
  rows,          ///< ... heads, sequence: lse
  heads,         ///< [batch,] heads: slopes and sinks; also batch, heads, 1, 1
};

/// An array as it was given, its sizes and strides (in elements) from the first dimension on.
struct Given {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::size_t dimensions = 0;  ///< at most 4
  std::array<index_t, 4> shape{}, strides{};
};

/// Throws nb::type_error: the elements of an array are of another type than ours.
[[noreturn]] void refuse_type(SlowArray name, std::string_view what);

/// Throws InvalidProblem where an array has more than 4 dimensions.
void require_dimensions(SlowArray name, index_t dimensions);

/// An array that offers the buffer protocol. Throws as tensor_of.
Given from_buffer(nb::handle array, SlowArray name, bool writable, Buffers& buffers);

/// Sizes that are missing in front are 1. Throws InvalidProblem, naming the array.
Tensor tensor_of(const Given& given, Form form, SlowArray name);

/// `array` is of the type of tensors that exchange.hpp reads, or offers the buffer protocol, or is a tuple (address,
/// type of elements, shape, strides in elements), the type being the number of a DType. In a buffer bf16 lies as
/// unsigned integers of 16 bits. Throws nb::type_error and InvalidProblem, naming the array.
Tensor tensor_of(nb::handle array, Form form, SlowArray name, bool writable, Buffers& buffers);

}  // namespace redblue::python
