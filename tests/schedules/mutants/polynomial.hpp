#pragma once
#include "redblue/methods/schedules/polynomial.hpp"
#include "redblue/methods/schedules/polynomial_backward.hpp"
#include "redblue/methods/schedules/polynomial_tiled.hpp"

/// Slips in polynomial attention.
namespace redblue::test::mutants {

using namespace schedule;

enum class PolynomialSlip {
  none,
  reads_all_coordinates,       ///< those of blocks that the group does not have
  forgets_the_row_sums,        ///< no column for them
  adds_to_the_first_group,     ///< partial outputs that nobody wrote
  drops_partial_outputs,       ///< of the group before
  forgets_den_for_the_others,  ///< which other columns divide by
  keeps_the_stack,             ///< beside the words that stream past, and beside the next row
  misses_the_last_group,
  passes_the_values_twice,
};

/// The passes of PolynomialTiledForward, one row at a time.
struct PolynomialTiledRows {
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, PolynomialTiledForward::Tiling t, PolynomialSlip slip) {
    using enum PolynomialSlip;
    schedule::PolynomialPasses(x.shape, t).for_each([&](const MonomialGroup& g, StateColumns c) {
      if (slip == misses_the_last_group && g.last) return;
      if (slip == forgets_the_row_sums) c.sums = 0;
      pass(m, x, g, c, slip);
    });
  }

  template <class M>
  static void pass(M& m, const ForwardOperands& x, const MonomialGroup& g, StateColumns c, PolynomialSlip slip) {
    using enum PolynomialSlip;
    const Sizes& s = x.shape;
    const auto Z = m.alloc(SlowArray::Z, {g.rows, c.values}), z = m.alloc(SlowArray::Z, {g.rows, c.sums});
    m.compute(kernel::Zero{}, Z);
    m.compute(kernel::Zero{}, z);
    for (index_t j = 0; j < s.n_k; ++j) {
      if (slip == reads_all_coordinates) (void)m.load(x.K.rows(j, 1));
      keys_into_state(m, x, g, c, {j, j + 1}, Z, z);
      if (slip == passes_the_values_twice && c.values > 0)
        (void)m.load(x.V.block({j, j + 1}, {c.first, c.first + c.values}));
    }
    const kernel::ApplyMonomials apply{g.monomials.times(*s.polynomial, x.scale)};
    for (index_t i = 0; i < s.n_q; ++i) {
      const Block O_i = x.O.block({i, i + 1}, {c.first, c.first + c.values}), den_i = x.den.rows(i, 1);
      const auto num = m.alloc(O_i), den = m.alloc(SlowArray::den, {1, c.sums});
      m.compute(kernel::Zero{}, num);
      m.compute(kernel::Zero{}, den);
      const Coordinates Q_i(m, g, x.Q, {i, i + 1});
      const auto kept = m.alloc(SlowArray::den, {slip == keeps_the_stack ? g.monomials.degree : 0, 1});
      {
        const auto stack = m.alloc(SlowArray::den, {g.monomials.degree, 1});
        m.compute(apply, num, den, stack, Q_i.tile(), Z, z);
      }
      const bool adds = slip != drops_partial_outputs && (!g.first || slip == adds_to_the_first_group);
      if (adds && c.values > 0) m.compute(kernel::Add{}, num, m.stream(O_i));
      if (adds && c.sums > 0) m.compute(kernel::Add{}, den, m.stream(den_i));
      if (g.last && c.sums > 0) m.compute(kernel::DivideRows{}, num, den);
      if (g.last && c.sums == 0) m.compute(kernel::DivideRows{}, num, m.stream(den_i));
      if (c.values > 0) m.store(num, O_i);
      const bool keeps = !g.last || (c.values < s.d_v && slip != forgets_den_for_the_others);
      if (c.sums > 0 && keeps) m.store(den, den_i);
    }
  }
};

enum class PolynomialBackwardSlip {
  none,
  forms_the_state_of_the_gradient_first,  ///< both states at a time
  takes_dO_for_dNum,
  forgets_dDen,
  reads_the_keys_a_third_time,
};

/// PolynomialBackward, one row at a time.
struct PolynomialGradient {
  template <Machine M>
  static void run(M& m, const BackwardOperands& x, PolynomialBackwardSlip slip) {
    using enum PolynomialBackwardSlip;
    using Parts = PolynomialGradients;
    const Sizes& s = x.shape;
    const MonomialGroup all = all_monomials(s);
    const kernel::Monomials w = all.monomials.times(*s.polynomial, x.scale);
    MonomialGroup early = all;
    if (slip != forms_the_state_of_the_gradient_first) early.rows = 0;
    {
      const auto both = m.alloc(SlowArray::G, {early.rows, s.d_v + 1});
      const Parts::State<M> Z(m, SlowArray::Z, all, s.d_v);
      for_queries_after_keys(
          s, 1, 1, [&](Range J) { keys_into_state(m, x, all, {0, s.d_v}, J, Z.Z, Z.z); },
          [&](Range I) {
            Parts::of_queries(m, x, w, Z, I, [&](const auto&, const auto&, const auto& dNum, const auto& dDen) {
              m.store(dNum, x.dNum.rows(I));
              if (slip != forgets_dDen) m.store(dDen, x.dDen.rows(I));
            });
          });
    }
    const Parts::State<M> dZ(m, SlowArray::G, all, s.d_v);
    index_t entered = s.n_q;
    for (index_t j = s.n_k - 1; j >= 0; --j) {
      const index_t first = s.pairs().rows_of({j, j + 1}).begin;
      for (; entered > first; --entered) {
        const Range I{entered - 1, entered};
        const auto Q_i = m.load(x.Q.rows(I));
        const auto dNum = m.load(slip == takes_dO_for_dNum ? x.dO.rows(I) : x.dNum.rows(I));
        const auto dDen = m.load(x.dDen.rows(I)), stack = m.alloc(SlowArray::den, {all.monomials.degree, 1});
        m.compute(kernel::AddMonomials{w}, dZ.Z, dZ.z, stack, Q_i, dNum, dDen);
      }
      if (slip == reads_the_keys_a_third_time) (void)m.load(x.K.rows(j, 1));
      Parts::of_keys(m, x, all.monomials, dZ, {j, j + 1});
    }
  }
};

}  // namespace redblue::test::mutants
