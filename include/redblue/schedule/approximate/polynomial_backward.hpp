#pragma once
#include "redblue/schedule/backward/linear.hpp"
#include "redblue/schedule/backward/operands.hpp"
#include "redblue/schedule/parts/polynomial_state.hpp"

namespace redblue::schedule {

/// What the gradients of polynomial attention (polynomial.hpp) keep resident beside states, and do with them. With
/// num = (w o phi(q)) Z and O = num / den: dNum = dO / den, dDen = -(dO . O) / den, dZ = SUM_i (w o phi(q_i)) (x) (dNum_i,
/// dDen_i), dq = J_phi(q)^T (w o Z (dNum, dDen)), dv = dZ^T phi(k), dk = J_phi(k)^T dZ (v, 1).
struct PolynomialGradients {
  /// r rows of d_v + 1.
  static Words state(const Sizes& x, SlowArray a) {
    const Words r = monomials(x.d, x.polynomial->degree());
    return x.tile(a, r, x.d_v) + x.tile(a, r, 1);
  }
  static Words stack(const Sizes& x) { return x.tile(SlowArray::den, x.polynomial->degree(), 1); }
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
    const Words r = monomials(x.d, x.polynomial->degree()), columns = Words(x.d_v) + 1;
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

/// Gradients of polynomial attention without a mask, both states resident.
///   reads 2 n_k (d + d_v) + n_q (d + d_v)   writes n_q d + n_k (d + d_v)
///   footprint 2 r (d_v + 1) + 2d + 2d_v + g + 1 for br = bc = 1
struct PolynomialTwoStateBackward : Defaults {
  using Operands = BackwardOperands;
  using Parts = PolynomialGradients;
  static constexpr std::string_view name = "polynomial_two_states";
  static constexpr std::string_view idea = "keeping the state of all monomials and its gradient resident";
  static constexpr Traits traits{.approximates = true};
  static constexpr std::array<SlowArray, 0> workspace{};

  using Tiling = LinearBackward::Tiling;

  static std::optional<std::string_view> unsupported(const Sizes& x) { return state_of_monomials_unsupported(x); }
  static Tiling smallest(const Sizes& x, const Multiples& m) { return LinearBackward::smallest(x, m); }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const Tiling t = smallest(x, limits.multiple);  // the words do not depend on it
    if (!limits.fit(footprint(x, t), prefetch(x, t))) return std::nullopt;
    return t;
  }

  /// The keys of the first pass find room for their gradients.
  static Words footprint(const Sizes& x, Tiling t) {
    return Parts::state(x, SlowArray::Z) + Parts::state(x, SlowArray::G) + Parts::stack(x) +
           std::max(Parts::queries(x, std::min(t.br, x.n_q)), Parts::keys(x, std::min(t.bc, x.n_k)));
  }
  /// The next keys and values, or the next Q_i and dO_i.
  static Words prefetch(const Sizes& x, Tiling t) {
    const index_t br = std::min(t.br, x.n_q);
    return std::max(Parts::arriving(x, std::min(t.bc, x.n_k)),
                    x.tile(SlowArray::Q, br, x.d) + x.tile(SlowArray::dO, br, x.d_v));
  }
  static Io io(const Sizes& x, Tiling) { return Parts::io(x); }
  static Words macs(const Sizes& x, Tiling) { return Parts::macs(x); }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, Tiling t) {
    const Sizes& s = x.shape;
    const MonomialGroup all = all_monomials(s);
    const kernel::Monomials w = all.monomials.times(*s.polynomial, x.scale);
    const Blocks rows = s.pairs().row_blocks(t.br), keys = s.pairs().key_blocks(t.bc);
    const Parts::State<M> dZ(m, SlowArray::G, all, s.d_v), Z(m, SlowArray::Z, all, s.d_v);
    for (index_t j = 0; j < keys.count(); ++j) keys_into_state(m, x, all, {0, s.d_v}, keys(j), Z.Z, Z.z);
    for (index_t i = 0; i < rows.count(); ++i)
      Parts::of_queries(m, x, w, Z, rows(i), [&](const auto& stack, const auto& Q_i, const auto& dNum, const auto& dDen) {
        m.compute(kernel::AddMonomials{w}, dZ.Z, dZ.z, stack, Q_i, dNum, dDen);
      });
    for (index_t j = 0; j < keys.count(); ++j) Parts::of_keys(m, x, all.monomials, dZ, keys(j));
  }
};

/// The same with one state at a time, under a mask, too: Z and the queries, which leave dNum and dDen in slow memory; then,
/// from the last key to the first, dZ from the queries that see it, and dK and dV.
///   reads 2 n_k (d + d_v) + n_q (2d + 2d_v + 1)   writes n_q (d + d_v + 1) + n_k (d + d_v)
///   footprint r (d_v + 1) + 2d + 2d_v + g + 1 for br = bc = 1
struct PolynomialBackward : Defaults {
  using Operands = BackwardOperands;
  using Parts = PolynomialGradients;
  static constexpr std::string_view name = "polynomial";
  static constexpr std::string_view idea = "keeping one state of monomials at a time resident, and then its gradient";
  static constexpr Traits traits{.masks = true, .approximates = true};
  static constexpr std::array workspace{SlowArray::dNum, SlowArray::dDen};

  using Tiling = LinearBackward::Tiling;

  static std::optional<std::string_view> unsupported(const Sizes& x) { return state_of_monomials_unsupported(x); }
  static Tiling smallest(const Sizes& x, const Multiples& m) { return LinearBackward::smallest(x, m); }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const Tiling t = smallest(x, limits.multiple);  // the words do not depend on it
    if (!limits.fit(footprint(x, t), prefetch(x, t))) return std::nullopt;
    return t;
  }

  static std::array<Phase, 2> phases(const Sizes& x, Tiling t) {
    const index_t br = x.mask.full() ? std::min(t.br, x.n_q) : 1, bc = x.mask.full() ? std::min(t.bc, x.n_k) : 1;
    const Words stack = Parts::stack(x), entering = Parts::arriving(x, keys_entering(x, t.bc));
    const auto rows = [&](index_t n, SlowArray second) { return x.tile(SlowArray::Q, n, x.d) + x.tile(second, n, x.d_v); };
    const index_t queries = LinearBackward::queries_entering(x, t.br);
    const Words to_dZ = rows(queries, SlowArray::dNum) + x.tile(SlowArray::dDen, queries, 1);
    return {Phase{Parts::state(x, SlowArray::Z) + stack + std::max(Parts::queries(x, br), entering),
                  std::max(rows(br, SlowArray::dO), entering)},
            Phase{Parts::state(x, SlowArray::G) + stack + std::max(Parts::keys(x, bc), to_dZ),
                  std::max(Parts::arriving(x, bc), to_dZ)}};
  }
  static Words footprint(const Sizes& x, Tiling t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling) {
    const Words rows = x.n_q;
    return Parts::io(x)
        .read(SlowArray::Q, rows * x.d)
        .read(SlowArray::dNum, rows * x.d_v)
        .read(SlowArray::dDen, rows)
        .write(SlowArray::dNum, rows * x.d_v)
        .write(SlowArray::dDen, rows);
  }
  static Words macs(const Sizes& x, Tiling) { return Parts::macs(x); }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, Tiling t) {
    const Sizes& s = x.shape;
    const MonomialGroup all = all_monomials(s);
    const kernel::Monomials w = all.monomials.times(*s.polynomial, x.scale);
    {
      const Parts::State<M> Z(m, SlowArray::Z, all, s.d_v);
      for_queries_after_keys(
          s, t.br, t.bc, [&](Range J) { keys_into_state(m, x, all, {0, s.d_v}, J, Z.Z, Z.z); },
          [&](Range I) {
            Parts::of_queries(m, x, w, Z, I, [&](const auto&, const auto&, const auto& dNum, const auto& dDen) {
              m.store(dNum, x.dNum.rows(I));
              m.store(dDen, x.dDen.rows(I));
            });
          });
    }
    const Parts::State<M> dZ(m, SlowArray::G, all, s.d_v);
    const index_t bc = s.mask.full() ? t.bc : 1;
    index_t entered = s.n_q;  // queries from here on are in dZ
    for (index_t j = (ceil_div(s.n_k, bc) - 1) * bc; j >= 0; j -= bc) {
      const index_t first = s.pairs().rows_of({j, j + 1}).begin;
      for (index_t rows = 0; entered > first; entered -= rows) {
        rows = std::min(t.br, entered - first);
        const Range I{entered - rows, entered};
        const auto Q_i = m.load(x.Q.rows(I)), dNum = m.load(x.dNum.rows(I)), dDen = m.load(x.dDen.rows(I));
        const auto stack = m.alloc(SlowArray::den, {all.monomials.degree, 1});
        m.compute(kernel::AddMonomials{w}, dZ.Z, dZ.z, stack, Q_i, dNum, dDen);
      }
      Parts::of_keys(m, x, all.monomials, dZ, {j, std::min(j + bc, s.n_k)});
    }
  }
};

}  // namespace redblue::schedule
