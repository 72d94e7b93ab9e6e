#include "redblue/files/tensor_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"

namespace redblue::file {

std::optional<index_t> element_count(std::span<const index_t> shape, index_t element_bytes) {
  index_t product = element_bytes;
  bool empty = false;
  for (const index_t n : shape) {
    if (n < 0) return std::nullopt;
    empty = empty || n == 0;
    if (n != 0 && __builtin_mul_overflow(product, n, &product)) return std::nullopt;
  }
  return empty ? 0 : product / element_bytes;
}

std::vector<index_t> c_order_strides(std::span<const index_t> shape) {
  std::vector<index_t> strides(shape.size());
  index_t stride = 1;
  for (std::size_t k = shape.size(); k-- > 0; stride *= std::max<index_t>(shape[k], 1)) strides[k] = stride;
  return strides;
}

std::vector<index_t> fortran_order_strides(std::span<const index_t> shape) {
  std::vector<index_t> strides(shape.size());
  index_t stride = 1;
  for (std::size_t k = 0; k < shape.size(); stride *= std::max<index_t>(shape[k], 1), ++k) strides[k] = stride;
  return strides;
}

index_t FileTensor::size() const {
  const auto count = element_count(shape, static_cast<index_t>(size_of(dtype)));
  if (!count) throw InvalidProblem(fmt::format("no tensor has shape [{}]", text_of(shape)));
  return *count;
}

index_t FileTensor::size_bytes() const { return size() * static_cast<index_t>(size_of(dtype)); }

FileTensor c_order_tensor(DType dtype, std::vector<index_t> shape, const void* data) {
  FileTensor t{dtype, std::move(shape), {}, static_cast<const std::byte*>(data), false};
  t.size();  // throws for a shape whose strides would overflow
  t.strides = c_order_strides(t.shape);
  return t;
}

namespace {
template <class Word>
void copy_swapped(const std::byte* from, std::byte* to, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += sizeof(Word)) {
    std::reverse_copy(from + i, from + i + sizeof(Word), to + i);
  }
}
}  // namespace

Tensor::Tensor(const FileTensor& in_file, std::shared_ptr<const void> keeps_alive)
    : view_(in_file), owner_(std::move(keeps_alive)) {
  const std::size_t width = size_of(view_.dtype);
  const bool aligned = reinterpret_cast<std::uintptr_t>(view_.data) % width == 0;
  if (aligned && !view_.swap_bytes) return;
  const auto bytes = static_cast<std::size_t>(view_.size_bytes());
  const std::shared_ptr<std::byte[]> copy(new std::byte[bytes]);  // operator new aligns to 16
  if (!view_.swap_bytes) {
    if (bytes != 0) std::memcpy(copy.get(), view_.data, bytes);
  } else if (width == 8) {
    copy_swapped<std::uint64_t>(view_.data, copy.get(), bytes);
  } else if (width == 4) {
    copy_swapped<std::uint32_t>(view_.data, copy.get(), bytes);
  } else {
    copy_swapped<std::uint16_t>(view_.data, copy.get(), bytes);
  }
  view_.data = copy.get();
  view_.swap_bytes = false;
  owner_ = copy;
  copied_ = true;
}

void Tensor::throw_dtype_mismatch(std::size_t wanted_bytes) const {
  throw Unsupported(fmt::format("a tensor of {} is not one of elements of {} bytes", name_of(dtype()), wanted_bytes));
}

}  // namespace redblue::file
