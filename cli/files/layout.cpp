#include "files/layout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "redblue/machines/ram/storage.hpp"

namespace redblue::cli {

std::vector<double> numbers_of(const Tensor& t) {
  machine::Storage s;
  s.data = static_cast<std::byte*>(t.data);
  s.dtype = t.dtype;
  s.kv_heads = t.shape[1];
  s.batch_stride = t.strides[0];
  s.kv_head_stride = t.strides[1];
  s.row_stride = t.strides[2];
  s.col_stride = t.strides[3];
  const Shape one{t.shape[2], t.shape[3]};
  std::vector<double> numbers(static_cast<std::size_t>(t.shape[0] * t.shape[1] * one.words()));
  for (index_t i = 0; i < t.shape[0] * t.shape[1]; ++i)
    machine::gather<double>(s, {SlowArray::A1, i, 0, 0, one}, numbers.data() + i * one.words(), one.cols);
  return numbers;
}

namespace {

constexpr std::string_view kOrder = "bhnd";  // of Tensor

std::string dimensions(const std::string& letters) { return fmt::format("[{}]", fmt::join(letters, ", ")); }

/// The dimensions of that name. Throws InvalidProblem.
Dimensions named(const std::string& name) {
  if (const auto order = Dimensions::from_name(name)) return *order;
  throw InvalidProblem(fmt::format("--layout {}: {}", name, Dimensions::choices()));
}

}  // namespace

FileLayout::FileLayout(const std::string& name) : order_(named(name)) {}

FileLayout FileLayout::of_rank(std::size_t rank, const std::string& tensor) {
  for (const std::string& name : Dimensions::names())
    if (name.size() == rank) return FileLayout(name);
  throw InvalidProblem(
      fmt::format("{} has {} dimensions: give [n, d], [heads, n, d] or [batch, heads, n, d], or "
                  "another order with --layout",
                  tensor, rank));
}

std::string FileLayout::letters_of(SlowArray array) const {
  std::string letters = name();
  if (is_statistic(array) || array == SlowArray::lse_g) std::erase(letters, 'd');
  return letters;
}

Tensor FileLayout::view(SlowArray array, const file::Tensor& t) const {
  const std::string letters = letters_of(array);
  if (t.shape().size() != letters.size())
    throw InvalidProblem(fmt::format("{} is [{}]: in the layout {} it must be {}", tensor_name(array),
                                     fmt::join(t.shape(), ", "), name(), dimensions(letters)));
  std::array<index_t, 4> shape{1, 1, 1, 1}, strides{0, 0, 0, 0};
  strides[3] = 1;  // of lse, too
  for (std::size_t i = 0; i < letters.size(); ++i) {
    shape[kOrder.find(letters[i])] = t.shape()[i];
    strides[kOrder.find(letters[i])] = t.strides()[i];
  }
  Tensor view(const_cast<std::byte*>(t.data()), t.dtype(), shape, strides);
  view.read_only = true;
  return view;
}

std::vector<index_t> FileLayout::shape_in_file(SlowArray array, const std::array<index_t, 4>& shape) const {
  std::vector<index_t> sizes;
  for (const char letter : letters_of(array)) sizes.push_back(shape[kOrder.find(letter)]);
  return sizes;
}

Tensor FileLayout::contiguous(std::byte* data, DType dtype, const std::array<index_t, 4>& shape) const {
  return {data, dtype, shape, order_.strides(shape)};
}

void require_clear_layout(const FileLayout& layout, const Tensor& q, const Tensor& k) {
  if (!layout.has_heads() || layout.tokens_first()) return;
  const auto reads = [&](std::size_t heads) { return k.shape[heads] > 0 && q.shape[heads] % k.shape[heads] == 0; };
  const bool heads_first = reads(1), tokens_first = reads(2);
  const std::string other = layout.name().size() == 4 ? "bnhd" : "nhd";
  const auto shapes = [&] {
    const auto shown = [&](const Tensor& t) {
      return fmt::format("[{}]", fmt::join(layout.shape_in_file(SlowArray::Q, t.shape), ", "));
    };
    return fmt::format("q {} and k {}", shown(q), shown(k));
  };
  if (!heads_first && tokens_first)
    throw InvalidProblem(
        fmt::format("{} cannot be {}: {} query heads beside {} key-value heads; for {} give --layout {}", shapes(),
                    dimensions(layout.name()), q.shape[1], k.shape[1], dimensions(other), other));
  // Query heads that share key-value heads, read the other way round, are more queries than keys.
  const bool shared = q.shape[1] == k.shape[1] && q.shape[2] != k.shape[2];
  const bool crowded = q.shape[1] > 1 && q.shape[1] >= std::max(q.shape[2], k.shape[2]);
  if (heads_first && tokens_first && (shared || crowded))
    throw InvalidProblem(fmt::format(
        "{} can be {} ({} heads) and {} ({} heads), and the results differ: give --layout {} or --layout {}", shapes(),
        dimensions(layout.name()), q.shape[1], dimensions(other), q.shape[2], layout.name(), other));
}

bool same_numbers(const Tensor& a, const Tensor& b) { return a.shape == b.shape && numbers_of(a) == numbers_of(b); }

void copy(const Tensor& from, const Tensor& to) {
  const auto width = static_cast<index_t>(size_of(to.dtype));
  const auto at = [&](const Tensor& t, index_t b, index_t h, index_t r, index_t c) {
    return static_cast<std::byte*>(t.data) +
           width * (b * t.strides[0] + h * t.strides[1] + r * t.strides[2] + c * t.strides[3]);
  };
  const auto [batch, heads, rows, cols] = to.shape;
  for (index_t b = 0; b < batch; ++b)
    for (index_t h = 0; h < heads; ++h)
      for (index_t r = 0; r < rows; ++r)
        for (index_t c = 0; c < cols; ++c)
          std::memcpy(at(to, b, h, r, c), at(from, b, h, r, c), static_cast<std::size_t>(width));
}

}  // namespace redblue::cli
