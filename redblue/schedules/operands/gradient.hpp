#pragma once
#include <span>

#include "redblue/schedules/operands/backward.hpp"
#include "redblue/schedules/parts/projections.hpp"
#include "redblue/schedules/parts/visible.hpp"

namespace redblue::schedule {

/// The operands of every schedule of g = dL/dX in the papers' parametrisation (Alman & Song 2023, arXiv 2402.04497; Li
/// et al. 2024, arXiv 2410.09397), with their letters: O = f h, f = softmax(scale S A2^T), S = A1 X, h = A3 Y;
///   q = dO h^T, D = rowsum(dO o O), p = scale f o (q - D), U = p A2, g = A1^T U.
/// A1 n_q x d, A2 and A3 n_k x d, X d x d, Y d x d_v; O, lse and dO as for BackwardOperands -> g, d x d. The rest is
/// workspace that only schedules which declare it touch. Q, K and V are what plain attention calls S, A2 and h.
struct GradientXOperands {
  static constexpr Operation operation = Operation::gradient_x;
  static constexpr std::span<const SlowArray> inputs = facts_of(operation).reads;
  static constexpr std::span<const SlowArray> outputs = facts_of(operation).writes;

  Sizes shape;
  double scale = 1;
  SlowMatrix A1, A2, A3, X, Y, O, lse, dO, g;
  SlowMatrix S, h, D, U;
  SlowMatrix P;           ///< f, then p in its place
  SlowMatrix A, f, q, p;  ///< n_q x n_k each, of the printed algorithms: A = exp(S A2^T)
  SlowMatrix T;           ///< A1^T p
  SlowMatrix dU;          ///< dO Y^T, the gradient of what Y projects to O when A2 = A3
  SlowMatrix Q, K, V;

  [[gnu::noinline]] GradientXOperands(const Sizes& s, double score_scale, index_t instance = 0)
      : shape(s),
        scale(score_scale),
        A1{SlowArray::A1, {s.n_q, s.d}, instance, s.row0},
        A2{SlowArray::A2, {s.n_k, s.d}, instance, s.key0},
        A3{SlowArray::A3, {s.n_k, s.d}, instance, s.key0},
        X{SlowArray::X, {s.d, s.d}, instance},
        Y{SlowArray::Y, {s.d, s.d_v}, instance},
        O{SlowArray::O, {s.n_q, s.d_v * s.statistics()}, instance, s.row0},
        lse{SlowArray::lse, {s.n_q, s.statistics()}, instance, s.row0},
        dO{SlowArray::dO, {s.n_q, s.d_v}, instance, s.row0},
        g{SlowArray::g, {s.d, s.d}, instance},
        S{SlowArray::A1X, {s.n_q, s.d}, instance, s.row0},
        h{SlowArray::h, {s.n_k, s.d_v}, instance, s.key0},
        D{SlowArray::D, {s.n_q, s.statistics()}, instance, s.row0},
        U{SlowArray::U, {s.n_q, s.d}, instance, s.row0},
        P{SlowArray::P, {s.n_q, s.n_k}, instance, s.row0, s.key0},
        A{SlowArray::A, {s.n_q, s.n_k}, instance, s.row0, s.key0},
        f{SlowArray::f, {s.n_q, s.n_k}, instance, s.row0, s.key0},
        q{SlowArray::q, {s.n_q, s.n_k}, instance, s.row0, s.key0},
        p{SlowArray::p, {s.n_q, s.n_k}, instance, s.row0, s.key0},
        T{SlowArray::T, {s.d, s.n_k}, instance, 0, s.key0},
        dU{SlowArray::dU, {s.n_q, s.d}, instance, s.row0},
        Q(S),
        K(A2),
        V(h) {}

  index_t instance() const { return A1.instance; }
  auto all() const { return std::array{A1, A2, A3, X, Y, O, lse, dO, g, S, h, D, U, P, A, f, q, p, T, dU}; }
};

/// What query_pass calls its arrays, and what they are here.
inline constexpr std::array kGradientX{kProjected[0], kProjected[1], kProjected[2],
                                       Renaming{SlowArray::dQ, SlowArray::U}};

/// g = A1^T U.
inline Product gradient_product(const GradientXOperands& x) {
  return {x.g, transposed(x.A1), {x.U}, &Multiples::feature, &Multiples::feature};
}

}  // namespace redblue::schedule
