#include "redblue/verify/oracle/accumulated.hpp"

#include <fmt/format.h>

#include "redblue/threads/subnormals.hpp"
#include "redblue/verify/comparison.hpp"

namespace redblue {

namespace {

using namespace comparison;

/// gathered(), with 0 for rows of O where lse = -inf: no key gave them, and they may hold anything.
Matrix<double> gathered_from_keys(const Problem& p, const Tensors& tensors, SlowArray a, index_t instance) {
  Matrix<double> m = gathered(p, tensors, a, instance);
  if ((a != SlowArray::O && a != SlowArray::Og) || !p.has_statistics()) return m;
  const Matrix<double> lse = gathered(p, tensors, a == SlowArray::O ? SlowArray::lse : SlowArray::lse_g, instance);
  for (index_t i = 0; i < m.shape.rows; ++i)
    for (index_t t = 0; t < m.shape.cols && std::isinf(lse(i, 0)) && lse(i, 0) < 0; ++t) m(i, t) = 0;
  return m;
}

/// The outputs of these keys alone, from the arrays of one instance.
template <class T>
Matrices<T> part_of(const Problem& p, const Matrices<T>& in, index_t block, index_t instance) {
  if (p.op == Operation::merge)
    return {{SlowArray::O, in.at(SlowArray::Og)}, {SlowArray::lse, in.at(SlowArray::lse_g)}};
  const oracle::Dense<T> dense(p, in, block, instance);
  return is_forward(p.op) ? dense.forward() : dense.gradients();
}

template <class T, class Wide>
Verification verify_in(const Problem& p, const Tensors& tensors, const Tensors& before, DType compute,
                       const Roundings& roundings) {
  const auto inputs = inputs_of(p), outputs = outputs_of(p);
  const index_t block = std::max(oracle::kBlock, roundings.additions);
  std::map<SlowArray, Comparison> comparisons;
  std::map<SlowArray, index_t> nan_inputs;
  double largest_lse = 0;
  for (index_t h = 0; h < p.instances(); ++h) {
    Matrices<Wide> wide, given;
    Matrices<T> narrow;
    for (const SlowArray a : inputs) {
      const Matrix<double> m = gathered_from_keys(p, tensors, a, h);
      nan_inputs[a] += count_nan(m.words);
      wide[a] = converted<Wide>(m);
      narrow[a] = converted<T>(m);
    }
    for (const SlowArray a : outputs) {
      const Matrix<double> m = gathered_from_keys(p, before, a, h);
      nan_inputs[a] += count_nan(m.words);
      given[a] = converted<Wide>(m);
    }
    const Matrices<Wide> wanted = oracle::accumulated(p.op, given, part_of(p, wide, oracle::kBlock, h));
    const Matrices<T> plain = oracle::accumulated(p.op, given, part_of(p, narrow, block, h));
    for (const SlowArray a : outputs)
      comparisons[a].add(wanted.at(a), gathered_from_keys(p, tensors, a, h), plain.at(a));
    if (p.has_statistics())
      for (const Wide& x : (is_forward(p.op) ? given : wide).at(SlowArray::lse).words)
        if (std::isfinite(x)) largest_lse = std::max(largest_lse, std::abs(static_cast<double>(x)));
  }
  // A given lse is a score that was rounded to a word, and a split of keys rounds it again.
  const double times = 1 + std::sqrt(static_cast<double>(roundings.lse)), eps = eps_of(compute);
  Verification v;
  for (const SlowArray a : outputs) {
    v.outputs.push_back(comparisons[a].finish(4 * eps + times * 2 * (1 + largest_lse) * eps));
    v.outputs.back().name = tensor_name(a);
    v.nan_outputs += comparisons[a].nan_outputs;
  }
  for (const auto& [a, n] : nan_inputs)
    if (n > 0) v.nan_inputs.emplace_back(tensor_name(a), n);
  return v;
}

}  // namespace

Verification verify(const Problem& problem, const Tensors& tensors, const Tensors& before, DType compute,
                    const Roundings& roundings) {
  if (compute != DType::f32 && compute != DType::f64)
    throw Unsupported(fmt::format("compute type {}: arithmetic is f32 or f64", name_of(compute)));
  for (const Tensors* all : {&tensors, &before}) require_shapes(problem, outputs_of(problem), *all);
  require_shapes(problem, inputs_of(problem), tensors);
  const threads::FlushSubnormals as_in_a_run(true);
  return compute == DType::f64 ? verify_in<double, long double>(problem, tensors, before, compute, roundings)
                               : verify_in<float, double>(problem, tensors, before, compute, roundings);
}

}  // namespace redblue
