#include "arrays.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "dlpack.hpp"

namespace redblue::python {

void refuse_type(SlowArray name, std::string_view what) {
  throw nb::type_error(
      fmt::format("{} has elements of type {}: give float64, float32, float16 or bfloat16", tensor_name(name), what)
          .c_str());
}

namespace {

DType dtype_of_format(SlowArray name, const char* format) {
  std::string_view f = format == nullptr ? "B" : format;
  if (f.size() == 2 && (f[0] == '@' || f[0] == '=' || f[0] == '<')) f.remove_prefix(1);
  if (f == "f") return DType::f32;
  if (f == "d") return DType::f64;
  if (f == "e") return DType::f16;
  if (f == "H") return DType::bf16;
  if (f == "?") return DType::boolean;
  if (f == "b") return DType::int8;
  refuse_type(name, fmt::format("'{}' (as in Python's struct)", f));
}

}  // namespace

Given from_buffer(nb::handle array, SlowArray name, bool writable, Buffers& buffers) {
  Py_buffer& b = buffers.next();
  if (PyObject_GetBuffer(array.ptr(), &b, PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0)) != 0) {
    PyErr_Clear();
    if (PyObject_CheckBuffer(array.ptr()) == 0)
      throw nb::type_error(fmt::format("{} is no array: give one of NumPy or PyTorch, or one with DLPack or the buffer "
                                       "protocol",
                                       tensor_name(name))
                               .c_str());
    throw InvalidProblem(
        writable ? fmt::format("{} is read-only: an output must be writable", tensor_name(name))
                 : fmt::format("{} does not give its elements by the buffer protocol: copy it", tensor_name(name)));
  }
  buffers.keep();
  require_dimensions(name, b.ndim);
  Given g{.data = b.buf, .dtype = dtype_of_format(name, b.format), .dimensions = static_cast<std::size_t>(b.ndim)};
  for (std::size_t i = 0; i < g.dimensions; ++i) {
    if (b.shape[i] > 1 && b.strides[i] % b.itemsize != 0)
      throw InvalidProblem(fmt::format("a stride of {} is {} bytes, and its elements take {}: copy it",
                                       tensor_name(name), b.strides[i], b.itemsize));
    g.shape[i] = b.shape[i];
    g.strides[i] = b.strides[i] / b.itemsize;
  }
  return g;
}

namespace {

index_t integer(PyObject* number) {
  const index_t value = PyLong_AsLongLong(number);
  if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return value;
}

Given from_tuple(PyObject* tuple, SlowArray name) {
  PyObject *data = nullptr, *shape = nullptr, *strides = nullptr;
  int dtype = 0;
  if (PyArg_ParseTuple(tuple, "OiO!O!", &data, &dtype, &PyTuple_Type, &shape, &PyTuple_Type, &strides) == 0)
    throw nb::python_error();
  if (dtype < 0 || dtype > static_cast<int>(DType::int8)) refuse_type(name, fmt::format("number {}", dtype));
  const Py_ssize_t dimensions = PyTuple_Size(shape);
  require_dimensions(name, dimensions);
  if (PyTuple_Size(strides) != dimensions)
    throw InvalidProblem(
        fmt::format("{} has {} sizes and {} strides", tensor_name(name), dimensions, PyTuple_Size(strides)));
  Given g{.data = PyLong_AsVoidPtr(data),
          .dtype = static_cast<DType>(dtype),
          .dimensions = static_cast<std::size_t>(dimensions)};
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  for (std::size_t i = 0; i < g.dimensions; ++i) {
    g.shape[i] = integer(PyTuple_GetItem(shape, static_cast<Py_ssize_t>(i)));
    g.strides[i] = integer(PyTuple_GetItem(strides, static_cast<Py_ssize_t>(i)));
  }
  return g;
}

}  // namespace

void require_dimensions(SlowArray name, index_t dimensions) {
  if (dimensions > 4)
    throw InvalidProblem(fmt::format("{} has {} dimensions: give at most 4", tensor_name(name), dimensions));
}

Tensor tensor_of(nb::handle array, Form form, SlowArray name, bool writable, Buffers& buffers) {
  return tensor_of(is_exchanged(array)                    ? from_exchange(array, name)
                   : PyTuple_CheckExact(array.ptr()) != 0 ? from_tuple(array.ptr(), name)
                                                          : from_buffer(array, name, writable, buffers),
                   form, name);
}

Tensor tensor_of(const Given& g, Form form, SlowArray name) {
  const bool whole = form == Form::heads && g.dimensions == 4 && g.shape[2] == 1 && g.shape[3] == 1;
  const std::size_t behind = whole ? 0 : form == Form::rows ? 1 : form == Form::heads ? 2 : 0;
  if (g.dimensions + behind > 4)
    throw InvalidProblem(fmt::format("{} has {} dimensions: at most {}", tensor_name(name), g.dimensions, 4 - behind));
  if (form == Form::tokens_first && g.dimensions < 3)
    throw InvalidProblem(
        fmt::format("{} has {} dimensions: tokens come first in [batch, sequence, heads, features] and in [sequence, "
                    "heads, features]",
                    tensor_name(name), g.dimensions));
  if (reinterpret_cast<std::uintptr_t>(g.data) % size_of(g.dtype) != 0)
    throw InvalidProblem(
        fmt::format("{} is not aligned to its elements ({}): copy it", tensor_name(name), name_of(g.dtype)));
  Tensor t(g.data, g.dtype, {1, 1, 1, 1}, {0, 0, 0, behind == 0 ? 1 : 0});
  for (std::size_t i = 0; i < g.dimensions; ++i) {
    const std::size_t to = 4 - behind - g.dimensions + i;
    t.shape[to] = g.shape[i];
    t.strides[to] = g.strides[i];
  }
  if (form == Form::tokens_first) {
    std::swap(t.shape[1], t.shape[2]);
    std::swap(t.strides[1], t.strides[2]);
  }
  if (t.shape[3] == 1 && behind == 0) t.strides[3] = 1;  // nothing is beside it
  return t;
}

}  // namespace redblue::python
