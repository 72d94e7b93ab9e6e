#include "redblue/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

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
  for (const auto& [name, keys] : {std::pair("window_left", window_left), std::pair("window_right", window_right)})
    if (keys && (*keys < 0 || *keys > kLargest))
      throw InvalidProblem(fmt::format(
          "{} = {} is no number of keys: give 0 or more, or leave it out for a window without that edge", name, *keys));
  if (prefix < 0 || prefix > n_k)
    throw InvalidProblem(fmt::format("prefix = {} keys of n_k = {}: give a number from 0 to n_k", prefix, n_k));
  if (prefix > 0 && !causal && !window_right)
    throw InvalidProblem(fmt::format(
        "prefix = {} keys are seen by all, and no mask ends before them: set causal or window_right too", prefix));
  if (is_projected(op)) {
    if (kv_heads && *kv_heads != heads)
      throw InvalidProblem(
          fmt::format("kv_heads = {}: with operation {} every head has its own A2 and A3, so kv_heads = heads = {}",
                      *kv_heads, name_of(op), heads));
    if (sources == Sources::self && n_q != n_k)
      throw InvalidProblem(
          fmt::format("n_q = {} and n_k = {}: self-attention has A1 = A2 = A3, so n_q = n_k", n_q, n_k));
    if (op == Operation::backward_w) {
      require_size("d_in (columns of A1, A2, A3; --d-in)", d_in);
      if (!forward_given && score == Score::softmax)
        throw InvalidProblem(
            "operation backward-w needs O and lse: run operation forward on Q = A1 WQ, K = A2 WK, V = A3 WV first");
    }
  } else if (sources != Sources::distinct) {
    throw InvalidProblem(
        fmt::format("sources = {}: operation {} has no A1, A2, A3; use distinct", name_of(sources), name_of(op)));
  }
  if (scale && !std::isfinite(*scale)) throw InvalidProblem(fmt::format("scale = {} is not a finite number", *scale));
}

double Problem::scale_or_default() const {
  const bool papers = is_projected(op) && op != Operation::backward_w;  // any factor is part of X
  return scale.value_or(papers ? 1 : 1 / std::sqrt(static_cast<double>(d)));
}

Mask Problem::mask() const {
  const index_t offset = causal_offset.value_or(n_k - n_q);
  Mask m;
  m.group = group();
  if (window_left) m.lo = offset - *window_left;
  if (window_right) m.hi = offset + *window_right + 1;
  if (causal) m.hi = std::min(m.hi, offset + 1);
  m.prefix = prefix;
  return part_of({m, n_q * m.group, n_k}, {0, n_q * m.group}, {0, n_k}).mask;  // an edge that hides nothing goes
}

Sizes Problem::sizes() const {
  Sizes s;
  s.n_q = n_q * group();
  s.n_k = n_k;
  s.d = d;
  s.d_v = d_v;
  s.mask = mask();
  s.score = score;
  s.lse_required = lse_required && s.statistics() > 0;
  s.d_in = d_in;
  return s;
}

bound::AttentionProblem Problem::bound_problem(Words M) const { return {sizes(), instances(), M, sources}; }

bool Problem::forward_first() const { return follows_forward(op) && !forward_given && score == Score::softmax; }

Problem Problem::forward() const {
  Problem p = *this;
  p.op = op == Operation::backward ? Operation::forward : Operation::forward_x;  // backward_w: validate() refuses
  p.lse_required = true;
  p.forward_given = true;
  p.scale = scale_or_default();
  return p;
}

}  // namespace redblue
