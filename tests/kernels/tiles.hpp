#pragma once
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "redblue/kernels/implementations.hpp"

/// Operands of kernels, as rows of words and as tiles that a machine would lay out for an implementation.
namespace redblue::kernel {

/// A matrix with strides of its own.
template <class T>
struct Matrix {
  std::vector<T> words;
  Shape shape;
  index_t stride;

  explicit Matrix(Shape s, index_t extra = 0)
      : words(static_cast<std::size_t>((s.rows + 1) * (s.cols + extra))), shape(s), stride(s.cols + extra) {}
  Matrix(Shape s, std::mt19937& random, double size = 1, index_t extra = 0) : Matrix(s, extra) {
    std::normal_distribution<double> normal(0, size);
    for (T& w : words) w = static_cast<T>(normal(random));
  }
  View<T> view() { return {words.data(), shape, stride}; }
};

/// A tile as a machine would lay it out for these implementations, with what `from` holds.
template <class T>
struct Laid {
  std::vector<T> words;
  std::vector<T> stored;  ///< where a tile of output panels may be stored
  View<T> view;

  Laid(const Implementations<T>& table, Matrix<T> from, Layout layout) {
    const Placement p = place(table, from.shape, layout);
    words.assign(static_cast<std::size_t>(p.words), std::numeric_limits<T>::quiet_NaN());
    view = View<T>(words.data() + p.panels, from.shape, p.row_stride, 1, p.layout);
    if (p.layout == Layout::key_panels) view.other_form = words.data();
    if (p.layout == Layout::output_panels) {
      stored.resize(static_cast<std::size_t>(from.shape.words()));
      view.other_form = stored.data();
      view.row_stride = from.shape.cols;
    }
    if (p.layout == Layout::query_panels) {
      table.pack_queries(from.view(), words.data());
    } else if (p.layout == Layout::output_panels) {
      table.pack(from.view(), words.data());
    } else if (p.layout != Layout::panel_scratch) {
      for (index_t i = 0; i < from.shape.rows; ++i)
        for (index_t j = 0; j < from.shape.cols; ++j) view(i, j) = from.view()(i, j);
      if (p.layout == Layout::key_panels) table.pack(view, view.other_form);
    }
  }
  Matrix<T> plain(const Implementations<T>& table) const {
    Matrix<T> m(view.shape);
    if (view.packed()) {
      table.unpack(words.data(), m.view());
    } else {
      for (index_t i = 0; i < view.rows(); ++i)
        for (index_t j = 0; j < view.cols(); ++j) m.view()(i, j) = view(i, j);
    }
    return m;
  }
};

/// f(implementations) for each instruction set of this processor that has some of its own: one that multiplies bf16 has
/// those of the set below.
template <class T = float, class F>
void on_every_isa(const F& f) {
  const Implementations<T>* before = nullptr;
  for (const Isa isa : kIsas) {
    if (!is_available(isa) || &implementations<T>(isa) == before) continue;
    SCOPED_TRACE(name_of(isa));
    before = &implementations<T>(isa);
    f(*before);
  }
}
/// The same without the portable ones, again and again until a test fails. Is there one?
template <class T, class F>
bool on_every_vector_isa(int times, const F& f) {
  bool any = false;
  on_every_isa<T>([&](const Implementations<T>& table) {
    if (&table == &implementations<T>(Isa::portable)) return;
    any = true;
    for (int i = 0; i < times && !testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE(i);
      f(table);
    }
  });
  return any;
}

}  // namespace redblue::kernel
