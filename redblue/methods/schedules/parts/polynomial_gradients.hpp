#pragma once
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/polynomial_state.hpp"
#include "redblue/schedules/operands/backward.hpp"

namespace redblue::schedule {

/// What the gradients of polynomial attention (polynomial.hpp) keep resident beside states, and do with them. With
/// num = (w o phi(q)) Z and O = num / den: dNum = dO / den, dDen = -(dO . O) / den, dZ = SUM_i (w o phi(q_i)) (x)
/// (dNum_i, dDen_i), dq = J_phi(q)^T (w o Z (dNum, dDen)), dv = dZ^T phi(k), dk = J_phi(k)^T dZ (v, 1).
struct PolynomialGradients {
  /// r rows of d_v + 1.
  static Words state(const Sizes& x, SlowArray a) {
    const Words r = monomials(x.d, polynomial_of(x)->degree());
    return x.tile(a, r, x.d_v) + x.tile(a, r, 1);
  }
  static Words stack(const Sizes& x) { return x.tile(SlowArray::den, polynomial_of(x)->degree(), 1); }
  /// Q_i, dO_i, num, den and dQ_i.
  static Words queries(const Sizes& x, index_t br) {
    return x.tile(SlowArray::Q, br, x.d) + x.tile(SlowArray::dO, br, x.d_v) + x.tile(SlowArray::O, br, x.d_v) +
           x.tile(SlowArray::den, br, 1) + x.tile(SlowArray::dQ, br, x.d);
  }
  /// K_j and V_j, and with their gradients.
  static Words arriving(const Sizes& x, index_t bc) {
    return x.tile(SlowArray::K, bc, x.d) + x.tile(SlowArray::V, bc, x.d_v);
  }
  static Words keys(const Sizes& x, index_t bc) {
    return arriving(x, bc) + x.tile(SlowArray::dK, bc, x.d) + x.tile(SlowArray::dV, bc, x.d_v);
  }
  static Words macs(const Sizes& x) {
    const Words r = monomials(x.d, polynomial_of(x)->degree()), columns = Words(x.d_v) + 1;
    return r * columns * (2 * Words(x.n_k) + 3 * Words(x.n_q)) + r * x.n_k * x.d_v + Words(x.n_q) * x.d_v;
  }
  static Io io(const Sizes& x) {
    return Io()
        .read(SlowArray::K, Words(2) * x.n_k * x.d)
        .read(SlowArray::V, Words(2) * x.n_k * x.d_v)
        .read(SlowArray::Q, Words(x.n_q) * x.d)
        .read(SlowArray::dO, Words(x.n_q) * x.d_v)
        .write(SlowArray::dQ, Words(x.n_q) * x.d)
        .write(SlowArray::dK, Words(x.n_k) * x.d)
        .write(SlowArray::dV, Words(x.n_k) * x.d_v);
  }

  template <class W>
  struct State {
    Tile<W> Z, z;
    State(W& w, SlowArray a, const MonomialGroup& g, index_t d_v)
        : Z(w.alloc(a, {g.rows, d_v})), z(w.alloc(a, {g.rows, 1})) {
      w.compute(kernel::Zero{}, Z);
      w.compute(kernel::Zero{}, z);
    }
  };

  /// dQ of these queries; then f(stack, Q_i, dNum, dDen).
  template <class M, class F>
  static void of_queries(M& m, const BackwardOperands& x, const kernel::Monomials& w, const State<M>& Z, Range I,
                         const F& f) {
    const auto Q_i = m.load(x.Q.rows(I)), dO_i = m.load(x.dO.rows(I));
    const auto num = m.alloc(SlowArray::O, {I.size(), x.shape.d_v}), den = m.alloc(SlowArray::den, {I.size(), 1});
    const auto dQ_i = m.alloc(x.dQ.rows(I)), stack = m.alloc(SlowArray::den, {w.degree, 1});
    m.compute(kernel::Zero{}, num);
    m.compute(kernel::Zero{}, den);
    m.compute(kernel::Zero{}, dQ_i);
    m.compute(kernel::ApplyMonomials{w}, num, den, stack, Q_i, Z.Z, Z.z);
    m.compute(kernel::DivisionGradients{}, dO_i, den, num);
    m.compute(kernel::DifferentiateMonomials{w}, dQ_i, stack, Q_i, Z.Z, Z.z, dO_i, den);
    m.store(dQ_i, x.dQ.rows(I));
    f(stack, Q_i, dO_i, den);
  }
  /// dK and dV of these keys.
  template <class M>
  static void of_keys(M& m, const BackwardOperands& x, const kernel::Monomials& plain, const State<M>& dZ, Range J) {
    const auto K_j = m.load(x.K.rows(J)), V_j = m.load(x.V.rows(J));
    const auto dK_j = m.alloc(x.dK.rows(J)), dV_j = m.alloc(x.dV.rows(J));
    const auto stack = m.alloc(SlowArray::den, {plain.degree, 1});
    m.compute(kernel::Zero{}, dK_j);
    m.compute(kernel::Zero{}, dV_j);
    m.compute(kernel::ApplyMonomials{plain}, dV_j, kNoWords, stack, K_j, dZ.Z, kNoWords);
    m.compute(kernel::DifferentiateMonomials{plain}, dK_j, stack, K_j, dZ.Z, dZ.z, V_j, kNoWords);
    m.store(dK_j, x.dK.rows(J));
    m.store(dV_j, x.dV.rows(J));
  }
};

}  // namespace redblue::schedule
