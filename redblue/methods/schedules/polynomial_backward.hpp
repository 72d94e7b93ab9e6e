#pragma once
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/polynomial_gradients.hpp"
#include "redblue/schedules/linear/backward.hpp"

namespace redblue::schedule {

/// Gradients of polynomial attention without a mask, both states resident.
///   reads 2 n_k (d + d_v) + n_q (d + d_v)   writes n_q d + n_k (d + d_v)
///   footprint 2 r (d_v + 1) + 2d + 2d_v + g + 1 for br = bc = 1
struct PolynomialTwoStateBackward : Defaults {
  using Operands = BackwardOperands;
  using Parts = PolynomialGradients;
  static constexpr std::string_view name = "polynomial_two_states";
  static constexpr std::string_view idea = "keeping the state of all monomials and its gradient resident";
  static constexpr Traits traits{.method = methods::kPolynomial};
  static constexpr std::array<SlowArray, 0> workspace{};

  using Tiling = LinearBackward::Tiling;

  static std::optional<std::string_view> unsupported(const Sizes& x) { return state_of_monomials_unsupported(x); }
  static Tiling smallest(const Sizes& x, const Multiples& m) { return LinearBackward::smallest(x, m); }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    return smallest_if_it_fits<PolynomialTwoStateBackward>(x, limits);
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
    const kernel::Monomials w = all.monomials.times(*polynomial_of(s), x.scale);
    const Blocks rows = s.pairs().row_blocks(t.br), keys = s.pairs().key_blocks(t.bc);
    const Parts::State<M> dZ(m, SlowArray::G, all, s.d_v), Z(m, SlowArray::Z, all, s.d_v);
    for (index_t j = 0; j < keys.count(); ++j) keys_into_state(m, x, all, {0, s.d_v}, keys(j), Z.Z, Z.z);
    for (index_t i = 0; i < rows.count(); ++i)
      Parts::of_queries(m, x, w, Z, rows(i),
                        [&](const auto& stack, const auto& Q_i, const auto& dNum, const auto& dDen) {
                          m.compute(kernel::AddMonomials{w}, dZ.Z, dZ.z, stack, Q_i, dNum, dDen);
                        });
    for (index_t j = 0; j < keys.count(); ++j) Parts::of_keys(m, x, all.monomials, dZ, keys(j));
  }
};

/// The gradients of polynomial attention with one state at a time, also under a mask: Z and the queries, which leave
/// dNum and dDen in slow memory; then, from the last key to the first, dZ from the queries that see it, and dK and dV.
///   reads 2 n_k (d + d_v) + n_q (2d + 2d_v + 1)   writes n_q (d + d_v + 1) + n_k (d + d_v)
///   footprint r (d_v + 1) + 2d + 2d_v + g + 1 for br = bc = 1
struct PolynomialBackward : Defaults {
  using Operands = BackwardOperands;
  using Parts = PolynomialGradients;
  static constexpr std::string_view name = "polynomial";
  static constexpr std::string_view idea = "keeping one state of monomials at a time resident, and then its gradient";
  static constexpr Traits traits{.masks = true, .method = methods::kPolynomial};
  static constexpr std::array workspace{SlowArray::dNum, SlowArray::dDen};

  using Tiling = LinearBackward::Tiling;

  static std::optional<std::string_view> unsupported(const Sizes& x) { return state_of_monomials_unsupported(x); }
  static Tiling smallest(const Sizes& x, const Multiples& m) { return LinearBackward::smallest(x, m); }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    return smallest_if_it_fits<PolynomialBackward>(x, limits);
  }

  static std::array<Phase, 2> phases(const Sizes& x, Tiling t) {
    const index_t br = x.mask.full() ? std::min(t.br, x.n_q) : 1, bc = x.mask.full() ? std::min(t.bc, x.n_k) : 1;
    const Words stack = Parts::stack(x), entering = Parts::arriving(x, keys_entering(x, t.bc));
    const auto rows = [&](index_t n, SlowArray second) {
      return x.tile(SlowArray::Q, n, x.d) + x.tile(second, n, x.d_v);
    };
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
    const kernel::Monomials w = all.monomials.times(*polynomial_of(s), x.scale);
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
