#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "redblue/methods/maths/approximations.hpp"
#include "redblue/problem/sequences.hpp"

/// Random problems that ask for each method, on which claims are tried (verify/claims.hpp).
namespace redblue::methods {

namespace {

using Draw = MethodKind::Draw;
using Solves = MethodKind::Solves;

/// Near e^z on |z| <= halves / 2, kept: it takes milliseconds to make, a case less.
std::shared_ptr<const Polynomial> polynomial_near_exp(index_t degree, index_t halves) {
  static std::mutex mutex;
  static std::map<std::pair<index_t, index_t>, std::shared_ptr<const Polynomial>> made;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const Polynomial>& p = made[{degree, halves}];
  if (p == nullptr) p = approximate_exp(degree, static_cast<double>(halves) / 2);
  return p;
}

/// Radii are about d times the scale of a case: some rows are beyond the range.
void ask_for_rows(index_t degree, Sizes& x, const Draw& draw, const Solves& solves) {
  const double range = draw(0, 1) == 1 ? 1.0 : 0.25;  // few ranges: a grid of polynomials takes a tenth of a second
  RowOptions how;
  how.centred = draw(0, 1) == 1;
  how.exact_keys = std::max<index_t>(0, draw(-4, 6));
  how.exact_rows = draw(0, 3) > 0;
  if (degree == 2 && draw(0, 2) == 0) {  // sums of weights of other degrees may come near 0
    how.centred = true;
    how.fit = Fit::gaussian;
  }
  if (draw(0, 1) == 1) how.exact_keys = 0, how.cluster = draw(1, 6), how.seed = draw(0, 1000);
  const auto ask = [&] {
    if (how.centred && how.exact_keys == 1)
      how.exact_keys = 2;  // of two, both as far from their mean, any may be the one
    x.approximation = polynomials_of_rows(degree, how.fit == Fit::gaussian ? range / 4 : range, how);
  };
  ask();
  if (!solves(x)) {  // of a schedule without clusters, or for nothing else
    how.exact_keys = how.cluster > 0 ? std::max<index_t>(1, draw(-4, 6)) : 0;
    how.cluster = how.cluster > 0 ? 0 : draw(1, 6);
    ask();
  }
  if (!solves(x)) {  // of a schedule without anything exact
    how.exact_keys = how.cluster = 0;
    how.exact_rows = false;
    ask();
  }
}

index_t seed_from(const Draw& draw) { return draw(0, 1000); }

}  // namespace

void ask_for_polynomial(Sizes& x, const Draw& draw, bool by_rows, const Solves& solves) {
  index_t degree = draw(1, 4);
  while (monomials(x.d, degree) > 60) --degree;  // each may be a pass of its own, and a trace has an end
  const index_t halves = draw(2, 4);
  if (by_rows)
    ask_for_rows(degree, x, draw, solves);
  else
    x.approximation = polynomial_near_exp(degree, halves);
}

void ask_for_linear_attention(Sizes& x, const Draw&, bool, const Solves&) {
  x.approximation = approximate_by(LinearAttention{});
}

void ask_for_performer(Sizes& x, const Draw& draw, bool, const Solves&) {
  x.approximation = approximate_by(Performer{draw(1, 12), seed_from(draw)});
}

void ask_for_linformer(Sizes& x, const Draw& draw, bool, const Solves&) {
  x.approximation = approximate_by(Linformer{draw(1, x.n_k), draw(0, 1) == 1, seed_from(draw)});
}

void ask_for_nystroemformer(Sizes& x, const Draw& draw, bool, const Solves&) {
  x.approximation = approximate_by(Nystroemformer{draw(1, std::min(x.n_q, x.n_k)), draw(1, 6)});
}

void ask_for_smyrf(Sizes& x, const Draw& draw, bool, const Solves&) {
  x.approximation = approximate_by(Smyrf{draw(1, 3), draw(1, x.n_k), seed_from(draw)});
}

void ask_for_hyper_attention(Sizes& x, const Draw& draw, bool, const Solves&) {
  x.approximation = approximate_by(HyperAttention{draw(1, x.n_k), draw(0, x.n_k), draw(1, 4), seed_from(draw)});
}

void ask_for_reformer(Sizes& x, const Draw& draw, bool, const Solves&) {
  x.n_k = x.n_q = x.n_q / x.mask.group;
  x.mask = {};
  if (draw(0, 1) == 1) x.mask.hi = 1;
  x.sequences = nullptr;
  x.approximation = approximate_by(Reformer{draw(1, 3), draw(1, x.n_k), 2 * draw(1, 4), seed_from(draw)});
}

void ask_for_coreset(Sizes& x, const Draw& draw, bool, const Solves&) {
  Coreset c{.block = draw(1, x.n_k), .balanced = draw(0, 1) == 1, .carried = draw(0, 1) == 1};
  c.rank = draw(1, c.carried ? x.n_k : c.block);
  c.seed = seed_from(draw);
  x.approximation = approximate_by(c);
}

void ask_for_uniform_sample(Sizes& x, const Draw& draw, bool, const Solves&) {
  x.approximation = approximate_by(UniformSample{draw(1, x.n_k), seed_from(draw)});
}

}  // namespace redblue::methods
