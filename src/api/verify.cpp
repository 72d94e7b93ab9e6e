#include "redblue/verify.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <vector>

#include "redblue/machine/storage.hpp"
#include "storage_of.hpp"

namespace redblue {

namespace {

template <class T>
struct RowResult {
  std::vector<T> o;
  T lse;
};

/// Plain attention of one query in T: scores, maximum, weights, weighted sum.
template <class T>
RowResult<T> attend(const std::vector<T>& q, const std::vector<T>& K, const std::vector<T>& V, index_t seen, T scale,
                    index_t d, index_t d_v) {
  const auto at = [](const std::vector<T>& x, index_t i) { return x[static_cast<std::size_t>(i)]; };
  std::vector<T> s(static_cast<std::size_t>(seen));
  T m = -std::numeric_limits<T>::infinity();
  for (index_t j = 0; j < seen; ++j) {
    T sum = 0;
    for (index_t t = 0; t < d; ++t) sum += at(q, t) * at(K, j * d + t);
    sum *= scale;
    s[static_cast<std::size_t>(j)] = sum;
    if (sum > m || std::isnan(sum)) m = sum;
  }
  RowResult<T> r{std::vector<T>(static_cast<std::size_t>(d_v), T(0)), m};
  if (m == -std::numeric_limits<T>::infinity()) return r;  // sees nothing
  T l = 0;
  for (T& p : s) l += p = std::exp(p - m);
  for (index_t j = 0; j < seen; ++j)
    for (index_t t = 0; t < d_v; ++t) r.o[static_cast<std::size_t>(t)] += at(s, j) * at(V, j * d_v + t);
  for (T& o : r.o) o /= l;
  r.lse = m + std::log(l);
  return r;
}

template <class T>
std::vector<T> gathered(const machine::Storage& s, index_t instance, index_t row, Shape shape) {
  std::vector<T> out(static_cast<std::size_t>(shape.words()));
  machine::gather<T>(s, {SlowArray::Q, instance, row, 0, shape}, out.data(), shape.cols);
  return out;
}

index_t count_nan(const std::vector<double>& x) {
  index_t n = 0;
  for (double v : x) n += std::isnan(v) ? 1 : 0;
  return n;
}

/// Gathers absolute errors; made relative at the end.
struct Comparison {
  Deviation d;
  double largest = 0;
  index_t nan_outputs = 0;

  void add(double oracle, double ours, double naive) {
    nan_outputs += std::isnan(ours) ? 1 : 0;
    if (std::isnan(oracle) != std::isnan(ours)) ++d.nan_mismatches;
    if (std::isnan(oracle) || std::isnan(ours)) return;
    if (std::isinf(oracle) || std::isinf(ours)) {
      if (oracle != ours) d.error = std::numeric_limits<double>::infinity();
      return;
    }
    largest = std::max(largest, std::abs(oracle));
    d.error = std::max(d.error, std::abs(oracle - ours));
    if (!std::isnan(naive)) d.naive_error = std::max(d.naive_error, std::abs(oracle - naive));
  }
  Deviation finish(double roundings) {
    if (largest > 0) {
      d.error /= largest;
      d.naive_error /= largest;
    }
    d.tolerance = 2 * d.naive_error + roundings;
    return d;
  }
};

double eps_of(DType t) {
  switch (t) {
    case DType::f64:
      return std::ldexp(1.0, -53);
    case DType::f32:
      return std::ldexp(1.0, -24);
    case DType::f16:
      return std::ldexp(1.0, -11);
    case DType::bf16:
      return std::ldexp(1.0, -8);
  }
  return 1;
}

/// T is the compute type, Wide that of the oracle: one must be wider than the other, or plain attention in T would err
/// by nothing and nothing would be allowed.
template <class T, class Wide>
Verification verify_in(const Problem& p, const Inputs& in, const Outputs& out, DType compute) {
  const index_t kv_heads = p.kv_heads.value_or(p.heads), group = p.group();
  const schedule::ForwardShape x = p.shape();
  const auto Q = storage_of(in.q, kv_heads, group, false), K = storage_of(in.k, kv_heads, 1, false),
             V = storage_of(in.v, kv_heads, 1, false);
  const auto O = storage_of(out.o, kv_heads, group, false);
  const bool has_lse = out.lse.data != nullptr;
  const auto lse = has_lse ? storage_of(out.lse, kv_heads, group, false) : machine::Storage{};
  Verification v;
  Comparison o_cmp, lse_cmp;
  double largest_lse = 0;
  for (index_t h = 0; h < p.instances(); ++h) {
    const auto K64 = gathered<double>(K, h, 0, {x.n_k, x.d}), V64 = gathered<double>(V, h, 0, {x.n_k, x.d_v});
    const std::vector<Wide> K_wide(K64.begin(), K64.end()), V_wide(V64.begin(), V64.end());
    const auto KT = gathered<T>(K, h, 0, {x.n_k, x.d}), VT = gathered<T>(V, h, 0, {x.n_k, x.d_v});
    v.nan_inputs[1] += count_nan(K64);
    v.nan_inputs[2] += count_nan(V64);
    for (index_t r = 0; r < x.n_q; ++r) {
      const index_t seen = x.mask.visible(r, x.n_k);
      const auto q = gathered<double>(Q, h, r, {1, x.d});
      v.nan_inputs[0] += count_nan(q);
      const auto oracle =
          attend<Wide>({q.begin(), q.end()}, K_wide, V_wide, seen, Wide(p.scale_or_default()), x.d, x.d_v);
      const auto naive =
          attend<T>(gathered<T>(Q, h, r, {1, x.d}), KT, VT, seen, static_cast<T>(p.scale_or_default()), x.d, x.d_v);
      const auto ours = gathered<double>(O, h, r, {1, x.d_v});
      if (std::isfinite(oracle.lse)) largest_lse = std::max(largest_lse, std::abs(static_cast<double>(oracle.lse)));
      for (std::size_t t = 0; t < ours.size(); ++t)
        o_cmp.add(static_cast<double>(oracle.o[t]), ours[t], static_cast<double>(naive.o[t]));
      if (has_lse)
        lse_cmp.add(static_cast<double>(oracle.lse), gathered<double>(lse, h, r, {1, 1})[0],
                    static_cast<double>(naive.lse));
    }
  }
  v.nan_outputs = o_cmp.nan_outputs + lse_cmp.nan_outputs;
  // A weight exp(s - lse) takes in the rounding of lse and of the difference: either costs it |lse| eps.
  v.o = o_cmp.finish(4 * std::max(eps_of(compute), eps_of(out.o.dtype)) + 2 * largest_lse * eps_of(compute));
  v.lse = lse_cmp.finish(4 * std::max(eps_of(compute), has_lse ? eps_of(out.lse.dtype) : 0));
  return v;
}

}  // namespace

Verification verify(const Problem& problem, const Inputs& inputs, const Outputs& outputs, DType compute) {
  require_shapes(problem, inputs, outputs);
  if (compute != DType::f32 && compute != DType::f64)
    throw Unsupported(fmt::format("compute type {}: arithmetic is f32 or f64", name_of(compute)));
  return compute == DType::f64 ? verify_in<double, long double>(problem, inputs, outputs, compute)
                               : verify_in<float, double>(problem, inputs, outputs, compute);
}

}  // namespace redblue
