#pragma once
#include "redblue/methods/schedules/coreset.hpp"
#include "redblue/methods/schedules/linear_attention.hpp"
#include "redblue/methods/schedules/linformer.hpp"
#include "redblue/methods/schedules/nystroemformer.hpp"
#include "redblue/methods/schedules/performer.hpp"
#include "redblue/methods/schedules/performer_tiled.hpp"
#include "redblue/methods/schedules/uniform_sample.hpp"

/// Slips in the published approximations, one row at a time.
namespace redblue::test::mutants {

using namespace schedule;

enum class LinearAttentionSlip {
  none,
  loads_the_keys,  ///< a whole key beside its values
  reads_the_values_twice,
  forgets_the_last_key,
  forgets_the_row_sums,  ///< divides by what nobody added up
};

struct LinearAttentionRows {
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, LinearAttentionSlip slip) {
    using enum LinearAttentionSlip;
    const Sizes& s = x.shape;
    const auto Z = m.alloc(SlowArray::Z, {s.d, s.d_v}), z = m.alloc(SlowArray::Z, {s.d, 1});
    m.compute(kernel::Zero{}, Z);
    m.compute(kernel::Zero{}, z);
    for (index_t j = 0; j < s.n_k - (slip == forgets_the_last_key ? 1 : 0); ++j) {
      const auto V_j = m.load(x.V.rows(j, 1));
      if (slip == reads_the_values_twice) m.load_into(V_j, x.V.rows(j, 1));
      if (slip == loads_the_keys) {
        const auto K_j = m.load(x.K.rows(j, 1));
        m.compute(kernel::AddElu{}, Z, z, K_j, V_j);
      } else {
        m.compute(kernel::AddElu{}, Z, z, m.stream(x.K.rows(j, 1)), V_j);
      }
    }
    for (index_t i = 0; i < s.n_q; ++i) {
      const auto num = m.alloc(x.O.rows(i, 1)), den = m.alloc(SlowArray::den, {1, 1});
      m.compute(kernel::Zero{}, num);
      if (slip != forgets_the_row_sums) m.compute(kernel::Zero{}, den);
      m.compute(kernel::ApplyElu{}, num, den, m.stream(x.Q.rows(i, 1)), Z, z);
      m.compute(kernel::DivideRows{}, num, den);
      m.store(num, x.O.rows(i, 1));
    }
  }
};

enum class PerformerSlip {
  none,
  takes_the_maximum_first,  ///< in a pass over the keys of its own
  keeps_the_maximum,        ///< when no more keys come
  lets_the_first_key_in_twice,
  never_begins_the_maximum,
};

/// All features of a row at a time.
struct PerformerRows {
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, PerformerSlip slip) {
    using enum PerformerSlip;
    const Sizes& s = x.shape;
    const Performer& p = std::get<Performer>(s.method);
    const FeatureState<M> state(m, {0, p.features}, {0, s.d_v, 1}, p.features);
    const auto kept = m.alloc(SlowArray::den, {slip == keeps_the_maximum ? 1 : 0, 1});
    {
      const auto c = m.alloc(SlowArray::den, {1, 1});
      if (slip != never_begins_the_maximum) m.compute(kernel::MinusInfinity{}, c);
      for (index_t j = 0; j < s.n_k; ++j) {
        if (slip == takes_the_maximum_first) {
          const auto K_j = m.load(x.K.rows(j, 1)), P = m.alloc(SlowArray::S, {1, p.features});
          m.compute(kernel::RandomFeatures{p.features, p.seed, 0, x.scale, true}, P, K_j);
        }
        state.add(m, x, c, {j, j + 1});
        if (slip == lets_the_first_key_in_twice && j == 0) state.add(m, x, c, {j, j + 1});
      }
    }
    for (index_t i = 0; i < s.n_q; ++i) {
      const auto num = m.alloc(x.O.rows(i, 1)), den = m.alloc(SlowArray::den, {1, 1});
      const auto most = m.alloc(SlowArray::den, {1, 1});
      m.compute(kernel::SoftmaxInit{}, num, most, den);
      state.add_to(m, x, {i, i + 1}, num, most, den);
      m.compute(kernel::DivideRows{}, num, den);
      m.store(num, x.O.rows(i, 1));
    }
  }
};

enum class TiledPerformerSlip {
  none,
  begins_anew,           ///< with each group
  leaves_the_last_sums,  ///< which nobody reads
  reads_the_sums_twice,
};

/// Groups of two features, all columns.
struct TiledPerformerRows {
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, TiledPerformerSlip slip) {
    using enum TiledPerformerSlip;
    const Sizes& s = x.shape;
    const index_t features = std::get<Performer>(s.method).features;
    const auto c = m.alloc(SlowArray::den, {1, 1});
    largest_logarithm_of_keys(m, x, c, 1, 1);
    for (index_t a = 0; a < features; a += 2) {
      const FeatureState<M> state(m, {a, a + 2}, {0, s.d_v, 1}, 1);
      for (index_t j = 0; j < s.n_k; ++j) state.add(m, x, c, {j, j + 1});
      for (index_t i = 0; i < s.n_q; ++i) {
        const auto num = m.alloc(x.O.rows(i, 1)), most = m.alloc(SlowArray::den, {1, 1});
        const auto den = m.alloc(SlowArray::den, {1, 1});
        if (a == 0 || slip == begins_anew) {
          m.compute(kernel::SoftmaxInit{}, num, most, den);
        } else {
          m.load_into(num, x.O.rows(i, 1));
          m.load_into(most, x.ids.rows(i, 1));
          for (int times = 0; times < (slip == reads_the_sums_twice ? 2 : 1); ++times)
            m.load_into(den, x.den.rows(i, 1));
        }
        state.add_to(m, x, {i, i + 1}, num, most, den);
        const bool last = a + 2 == features;
        if (last) m.compute(kernel::DivideRows{}, num, den);
        m.store(num, x.O.rows(i, 1));
        if (last && slip != leaves_the_last_sums) continue;
        m.store(most, x.ids.rows(i, 1));
        m.store(den, x.den.rows(i, 1));
      }
    }
  }
};

enum class LinformerSlip {
  none,
  loads_the_keys,                   ///< all of them, to project them
  projects_the_keys_a_second_time,  ///< for the values
  loads_the_queries,
  forgets_the_last_query,
};

struct LinformerRows {
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, LinformerSlip slip) {
    using enum LinformerSlip;
    const Sizes& s = x.shape;
    const Linformer& l = std::get<Linformer>(s.method);
    const auto keys = m.alloc(SlowArray::Z, {l.rank, s.d}), values = m.alloc(SlowArray::Z, {l.rank, s.d_v});
    const kernel::ProjectRows project{s.n_k, 0, l.random_signs, l.seed};
    m.compute(kernel::Zero{}, keys);
    m.compute(kernel::Zero{}, values);
    if (slip == loads_the_keys) {
      const auto K = m.load(x.K.all());
      m.compute(project, keys, K);
    } else {
      m.compute(project, keys, m.stream(x.K.all()));
    }
    if (slip == projects_the_keys_a_second_time) m.compute(project, keys, m.stream(x.K.all()));
    m.compute(project, values, m.stream(x.V.all()));
    for (index_t i = 0; i < s.n_q - (slip == forgets_the_last_query ? 1 : 0); ++i) {
      if (slip == loads_the_queries) {
        const auto Q_i = m.load(x.Q.rows(i, 1)), S = m.alloc(SlowArray::S, {1, l.rank});
        m.compute(kernel::Scores{x.scale}, S, Q_i, keys);
        m.compute(kernel::SoftmaxRows{}, S, kNoWords);
        m.update(kernel::GemmOver{.first = true}, x.O.rows(i, 1), S, values);
      } else {
        attend_by_words(m, x, {i, i + 1}, {keys.arg(), values.arg()});
      }
    }
  }
};

enum class SampleSlip {
  none,
  keeps_a_word,  ///< beside the keys
  loads_the_queries,
  reads_a_value_twice,
  forgets_the_last_query,
};

struct SampleRows {
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, SampleSlip slip) {
    using enum SampleSlip;
    const Sizes& s = x.shape;
    const UniformSample& u = std::get<UniformSample>(s.method);
    const std::vector<index_t> drawn = random_subset(u.keys, s.n_k, u.seed);
    const auto word = m.alloc(SlowArray::den, {slip == keeps_a_word ? 1 : 0, 1});
    const auto K = m.alloc(SlowArray::K, {u.keys, s.d}), V = m.alloc(SlowArray::V, {u.keys, s.d_v});
    for (index_t a = 0; a < u.keys; ++a) {
      m.load_into(K.rows(a, 1), x.K.rows(drawn[static_cast<std::size_t>(a)], 1));
      m.load_into(V.rows(a, 1), x.V.rows(drawn[static_cast<std::size_t>(a)], 1));
    }
    if (slip == reads_a_value_twice) m.load_into(V.rows(0, 1), x.V.rows(drawn.front(), 1));
    for (index_t i = 0; i < s.n_q - (slip == forgets_the_last_query ? 1 : 0); ++i)
      if (slip == loads_the_queries)
        attend_by_rows(m, x, {i, i + 1}, 1, {K.arg(), V.arg()});
      else
        attend_by_words(m, x, {i, i + 1}, {K.arg(), V.arg()});
  }
};

enum class NystroemformerSlip {
  none,
  makes_room_for_the_statistics,  ///< beside that of A
  misses_an_iteration,
  forgets_the_pseudo_inverse,
  takes_means_of_the_values,  ///< and forgets to attend with the landmarks
};

struct NystroemformerRows {
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, NystroemformerSlip slip) {
    using enum NystroemformerSlip;
    using S = NystroemformerForward;
    const Sizes& s = x.shape;
    const Nystroemformer& n = std::get<Nystroemformer>(s.method);
    const index_t L = n.landmarks;
    const auto keys = m.alloc(SlowArray::Z, {L, s.d}), values = m.alloc(SlowArray::Z, {L, s.d_v});
    {
      Shape room = S::room(s, {});
      if (slip == makes_room_for_the_statistics) room.cols += 2;
      const auto R = m.alloc(SlowArray::S, room);
      S::landmarks_attend(m, x, {}, R, keys, values);
      const auto Z = m.alloc(SlowArray::S, {L, L}), N = m.alloc(SlowArray::S, {L, L});
      const auto c = m.alloc(SlowArray::S, {L, 1}), u = m.alloc(SlowArray::S, {L, 1});
      std::array<Arg, 2> inverse{Z.arg(), N.arg()};
      m.compute(kernel::PseudoInverseStart{}, inverse[0], R.cols(L));
      for (index_t k = slip == misses_an_iteration ? 1 : 0; k < n.iterations; ++k) {
        m.compute(kernel::PseudoInverseStep{}, inverse[1], c, u, R.cols(L), inverse[0]);
        std::swap(inverse[0], inverse[1]);
      }
      if (slip == takes_means_of_the_values) m.compute(kernel::ProjectRows{s.n_k}, values, m.stream(x.V.all()));
      if (slip != forgets_the_pseudo_inverse) m.compute(kernel::MultiplyFromLeft{}, values, c, inverse[0]);
    }
    for (index_t i = 0; i < s.n_q; ++i) attend_by_words(m, x, {i, i + 1}, {keys.arg(), values.arg()});
  }
};

enum class CoresetSlip {
  none,
  makes_room_for_the_room_beside,  ///< where the values of the points will be
  measures_the_queries,            ///< for a tau that is 1
  loads_the_values,
  forgets_the_last_block,
  never_begins_the_bounds,
};

struct CoresetRows {
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, CoresetSlip slip) {
    using enum CoresetSlip;
    const Sizes& s = x.shape;
    const CoresetBlocks blocks(s);
    const auto bounds = m.alloc(SlowArray::O, {2, s.d_v});
    const auto all = m.alloc(SlowArray::Z, {blocks.core(), s.d + s.d_v + 1});
    const WeightedCore core{all.arg(), s.d, s.d_v};
    if (slip != never_begins_the_bounds) m.compute(kernel::MinusInfinity{}, bounds);
    if (slip == measures_the_queries) {
      const auto longest_q = m.alloc(SlowArray::den, {1, 1});
      m.compute(kernel::Zero{}, longest_q);
      m.compute(kernel::LongestRow{}, longest_q, m.stream(x.Q.all()));
    }
    for (index_t j = 0; j < blocks.count() - (slip == forgets_the_last_block ? 1 : 0); ++j) {
      const CoresetBlock b = blocks(j);
      const Range J = blocks.keys(j), points{blocks.row(j), blocks.row(j) + b.points};
      const index_t room = slip == makes_room_for_the_room_beside ? b.beside(s) : 0;
      const auto more = m.alloc(SlowArray::S, {b.points, room});
      const auto W = m.alloc(SlowArray::S, {b.points, b.all() - b.beside(s)});
      choose_points(m, x, b, j, J, core, points, W, kNoWords);
      if (slip == loads_the_values) const auto V_j = m.load(x.V.rows(J));
      add_up_points(m, x, b, J, core, points, W, bounds);
    }
    const Range points{0, blocks.core()};
    attend(m, x, {}, {core.keys(points), core.values(points), core.weights(points), bounds.arg()});
  }
};

}  // namespace redblue::test::mutants
