#include "redblue/problem.hpp"

#include <fmt/format.h>

#include <cmath>

#include "redblue/core/error.hpp"

namespace redblue {

namespace {

constexpr index_t kLargest = index_t{1} << 48;

void require_size(std::string_view name, index_t value) {
  if (value < 1 || value > kLargest)
    throw InvalidProblem(fmt::format("{} = {} is not a size: give a whole number from 1 to 2^48", name, value));
}

}  // namespace

void Problem::validate() const {
  require_size("batch", batch);
  require_size("heads", heads);
  require_size("kv_heads", kv_heads.value_or(heads));
  require_size("n_q", n_q);
  require_size("n_k", n_k);
  require_size("d", d);
  require_size("d_v", d_v);
  if (heads % kv_heads.value_or(heads) != 0)
    throw InvalidProblem(fmt::format(
        "heads = {} is not a multiple of kv_heads = {}: each key-value head serves the same number of query heads",
        heads, *kv_heads));
  const auto require_product = [](const char* what, index_t a, index_t b) {
    index_t product = 0;
    if (__builtin_mul_overflow(a, b, &product) || product > kLargest)
      throw InvalidProblem(fmt::format("{} = {} x {} is too large: at most 2^48", what, a, b));
  };
  require_product("batch x kv_heads", batch, kv_heads.value_or(heads));
  require_product("n_q x heads / kv_heads", n_q, group());
  if (causal_offset && (*causal_offset > kLargest || *causal_offset < -kLargest))
    throw InvalidProblem(fmt::format("causal_offset = {} is out of range: at most 2^48 either way", *causal_offset));
  if (scale && !std::isfinite(*scale)) throw InvalidProblem(fmt::format("scale = {} is not a finite number", *scale));
}

double Problem::scale_or_default() const { return scale.value_or(1 / std::sqrt(static_cast<double>(d))); }

schedule::ForwardShape Problem::shape() const {
  schedule::ForwardShape s;
  s.n_q = n_q * group();
  s.n_k = n_k;
  s.d = d;
  s.d_v = d_v;
  s.mask = {causal, causal_offset.value_or(n_k - n_q), group()};
  if (s.mask.visible(0, n_k) == n_k) s.mask.causal = false;  // the first query sees every key: nothing is masked
  s.lse_required = lse_required;
  return s;
}

bound::ForwardProblem Problem::bound_problem(Words M) const {
  const schedule::ForwardShape s = shape();
  return {instances(), s.n_q, s.n_k, s.d, s.d_v, s.mask, lse_required, M};
}

}  // namespace redblue
