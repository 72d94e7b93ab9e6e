#pragma once
#include <vector>

#include "redblue/runtime/run.hpp"

/// What a rank does to rows beside attention. Tensors are [batch, heads, rows, features].
namespace redblue::ranks {

/// Every word becomes x. The tensor is f32 or f64.
void fill(const Tensor& t, double x);
/// into += x, both f32 or both f64.
void add(const Tensor& x, const Tensor& into);
/// D[row] = the sum of dO o O over its features. dO and o have any types, D is f32 or f64.
void row_products(const Tensor& dO, const Tensor& o, const Tensor& D);
/// An o for which dO o O sums to D: 0 but for the feature where |dO| is largest, which is D / dO there. As |D| <=
/// max |dO| SUM |O|, no word of it is larger than SUM |O| of the true o.
void stand_in(const Tensor& dO, const Tensor& D, const Tensor& o);

/// The words of slopes or sinks, [1, heads, 1, 1] of any type.
std::vector<double> words_of_heads(const Tensor& t);
/// dSinks [1, heads, 1, 1] -= exp(sink - lse) D, summed over batches and rows; all but sinks f32 or f64.
void add_sink_gradients(const Tensor& sinks, const Tensor& lse, const Tensor& D, const Tensor& dSinks);

/// The state of a softmax over the sink alone: o = 0, lse = the sink of the head.
class SinkState {
 public:
  SinkState(const Tensor& sinks, const Problem& problem, DType type);
  Tensor o(std::array<index_t, 4> shape);
  Tensor lse(std::array<index_t, 4> shape);

 private:
  DType type_;
  std::vector<double> f64_;
  std::vector<float> f32_;
  void* words() { return type_ == DType::f64 ? static_cast<void*>(f64_.data()) : static_cast<void*>(f32_.data()); }
  std::size_t heads_;
};

}  // namespace redblue::ranks
