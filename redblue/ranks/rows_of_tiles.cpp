#include "redblue/ranks/rows_of_tiles.hpp"

#include <cmath>

#include "redblue/kernels/modifiers.hpp"
#include "redblue/machines/ram/storage.hpp"
#include "redblue/runtime/storage_of.hpp"

namespace redblue::ranks {
namespace {

/// f(first word of a row) of each row of tensors of the same rows.
template <class F>
void for_each_row(const Tensor& t, const F& f) {
  for (index_t b = 0; b < t.shape[0]; ++b)
    for (index_t h = 0; h < t.shape[1]; ++h)
      for (index_t r = 0; r < t.shape[2]; ++r) f(b, h, r);
}
template <class T>
T* row_of(const Tensor& t, index_t b, index_t h, index_t r) {
  return static_cast<T*>(t.data) + b * t.strides[0] + h * t.strides[1] + r * t.strides[2];
}

template <class T>
void fill_with(const Tensor& t, T x) {
  for_each_row(t, [&](index_t b, index_t h, index_t r) {
    T* const row = row_of<T>(t, b, h, r);
    for (index_t c = 0; c < t.shape[3]; ++c) row[c * t.strides[3]] = x;
  });
}

template <class T>
void add_rows(const Tensor& x, const Tensor& into) {
  for_each_row(into, [&](index_t b, index_t h, index_t r) {
    const T* const from = row_of<T>(x, b, h, r);
    T* const row = row_of<T>(into, b, h, r);
    for (index_t c = 0; c < into.shape[3]; ++c) row[c * into.strides[3]] += from[c * x.strides[3]];
  });
}

/// Rows of any type as words of type T, one at a time.
template <class T>
class RowReader {
 public:
  explicit RowReader(const Tensor& t)
      : storage_(storage_of(t, t.shape[1], 1, false)),
        heads_(t.shape[1]),
        words_(static_cast<std::size_t>(t.shape[3])) {}
  const std::vector<T>& operator()(index_t b, index_t h, index_t r) {
    const auto cols = static_cast<index_t>(words_.size());
    machine::gather<T>(storage_, {SlowArray::O, b * heads_ + h, r, 0, {1, cols}}, words_.data(), cols);
    return words_;
  }

 private:
  machine::Storage storage_;
  index_t heads_;
  std::vector<T> words_;
};

template <class T>
void products_of_rows(const Tensor& dO, const Tensor& o, const Tensor& D) {
  RowReader<T> gradients(dO), outputs(o);
  for_each_row(D, [&](index_t b, index_t h, index_t r) {
    const std::vector<T>&x = gradients(b, h, r), &y = outputs(b, h, r);
    T sum = 0;
    for (std::size_t c = 0; c < x.size(); ++c) sum += x[c] * y[c];
    *row_of<T>(D, b, h, r) = sum;
  });
}

template <class T>
void stand_in_rows(const Tensor& dO, const Tensor& D, const Tensor& o) {
  RowReader<T> gradients(dO);
  for_each_row(o, [&](index_t b, index_t h, index_t r) {
    const std::vector<T>& x = gradients(b, h, r);
    T* const row = row_of<T>(o, b, h, r);
    std::size_t largest = 0;
    for (std::size_t c = 0; c < x.size(); ++c) {
      row[static_cast<index_t>(c) * o.strides[3]] = 0;
      if (std::abs(x[c]) > std::abs(x[largest])) largest = c;
    }
    if (x[largest] != 0) row[static_cast<index_t>(largest) * o.strides[3]] = *row_of<T>(D, b, h, r) / x[largest];
  });
}

template <class T>
void add_sink_gradients_of(const Tensor& sinks, const Tensor& lse, const Tensor& D, const Tensor& dSinks) {
  RowReader<T> reader(sinks);
  const auto& [batch, heads, rows, cols] = lse.shape;
  const auto column = [&](const Tensor& t, index_t b, index_t h) {
    return View<const T>(row_of<T>(t, b, h, 0), {rows, cols}, t.strides[2]);
  };
  for (index_t b = 0; b < batch; ++b)
    for (index_t h = 0; h < heads; ++h)
      kernel::AddSinkGradients{}.run<T>(View<T>(row_of<T>(dSinks, 0, h, 0), {1, 1}, 1),
                                        View<const T>(reader(0, h, 0).data(), {1, 1}, 1), column(lse, b, h),
                                        column(D, b, h));
}

}  // namespace

void fill(const Tensor& t, double x) {
  t.dtype == DType::f64 ? fill_with<double>(t, x) : fill_with<float>(t, static_cast<float>(x));
}
void add(const Tensor& x, const Tensor& into) {
  x.dtype == DType::f64 ? add_rows<double>(x, into) : add_rows<float>(x, into);
}
void row_products(const Tensor& dO, const Tensor& o, const Tensor& D) {
  D.dtype == DType::f64 ? products_of_rows<double>(dO, o, D) : products_of_rows<float>(dO, o, D);
}
void stand_in(const Tensor& dO, const Tensor& D, const Tensor& o) {
  D.dtype == DType::f64 ? stand_in_rows<double>(dO, D, o) : stand_in_rows<float>(dO, D, o);
}

std::vector<double> words_of_heads(const Tensor& t) {
  RowReader<double> reader(t);
  std::vector<double> words;
  words.reserve(static_cast<std::size_t>(t.shape[1]));
  for (index_t h = 0; h < t.shape[1]; ++h) words.push_back(reader(0, h, 0)[0]);
  return words;
}
void add_sink_gradients(const Tensor& sinks, const Tensor& lse, const Tensor& D, const Tensor& dSinks) {
  D.dtype == DType::f64 ? add_sink_gradients_of<double>(sinks, lse, D, dSinks)
                        : add_sink_gradients_of<float>(sinks, lse, D, dSinks);
}

SinkState::SinkState(const Tensor& sinks, const Problem& problem, DType type)
    : type_(type), f64_(words_of_heads(sinks)), heads_(static_cast<std::size_t>(problem.heads)) {
  f64_.push_back(0);
  f32_.assign(f64_.begin(), f64_.end());
}
/// The word behind the sinks is 0: all of o is that one.
Tensor SinkState::o(std::array<index_t, 4> shape) {
  auto* const zero = static_cast<std::byte*>(words()) + heads_ * size_of(type_);
  return {zero, type_, shape, {0, 0, 0, 0}};
}
Tensor SinkState::lse(std::array<index_t, 4> shape) { return {words(), type_, shape, {0, 1, 0, 0}}; }

}  // namespace redblue::ranks
