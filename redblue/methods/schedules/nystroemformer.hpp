#pragma once
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/few_rows.hpp"
#include "redblue/schedules/parts/limits.hpp"
#include "redblue/schedules/parts/one_pass.hpp"

namespace redblue::schedule {

/// Nystroemformer (Xiong et al. 2021, arXiv 2102.03902): softmax(Q K~^T) A^+ softmax(Q~ K^T) V from right to left, with
/// L landmarks Q~ and K~, means of segments, A = softmax(Q~ K~^T), and A^+ by an iteration. All of it is resident. Q
/// and K pass twice, for the means and for the scores.
///   reads 2 (n_q + n_k) d + n_k d_v   writes n_q d_v   footprint for br = bc = 1: the largest of
///   2 L d + L d_v + L max(3, L) + 1,   L (d + d_v) + L max(3, L) + 2 L^2 + 2 L,   L (d + d_v) + L + 1
struct NystroemformerForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "nystroemformer";
  static constexpr std::string_view idea = "keeping landmarks and what becomes of them resident";
  static constexpr Traits traits{.method = methods::kNystroemformer};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t br = 1;  ///< queries per step
    index_t bc = 1;  ///< keys per step
    void tile_sizes(const auto& tile_size) {
      tile_size({"br", &Sizes::n_q}, br);
      tile_size({"bc", &Sizes::n_k}, bc);
    }
  };

  static index_t landmarks(const Sizes& x) { return std::get<Nystroemformer>(method_of(x)).landmarks; }
  static std::optional<std::string_view> unsupported(const Sizes& x) {
    if (x.mask.group > 1) return "takes means of queries: each head needs keys and values of its own";
    return std::nullopt;
  }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    return doubled_in_turn<NystroemformerForward>(x, limits);
  }

  /// What A is formed in: before, statistics of the landmarks and their scores with the keys of a step lie there.
  static Shape room(const Sizes& x, Tiling t) {
    return {landmarks(x), std::max(landmarks(x), 2 + std::min(t.bc, x.n_k))};
  }
  /// The landmarks meet keys and values; the pseudo-inverse; the queries.
  static std::array<Phase, 3> phases(const Sizes& x, Tiling t) {
    const index_t L = landmarks(x);
    const Words R = x.tile(SlowArray::S, room(x, t).rows, room(x, t).cols), q = x.word(SlowArray::Q);
    const Words word = std::max({q, x.word(SlowArray::K), x.word(SlowArray::V)});
    return {Phase{R + x.tile(SlowArray::Z, L, x.d) + word, word},
            Phase{R + 2 * x.tile(SlowArray::S, L, L) + 2 * x.tile(SlowArray::S, L, 1), 0},
            Phase{words_by_words(x, std::min(t.br, x.n_q), L), q}};
  }
  static Words footprint(const Sizes& x, Tiling t) {
    return x.tile(SlowArray::Z, landmarks(x), x.d) + x.tile(SlowArray::Z, landmarks(x), x.d_v) +
           footprint_of(phases(x, t));
  }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling) {
    return Io()
        .read(SlowArray::Q, 2 * Words(x.n_q) * x.d)
        .read(SlowArray::K, 2 * Words(x.n_k) * x.d)
        .read(SlowArray::V, Words(x.n_k) * x.d_v)
        .write(SlowArray::O, Words(x.n_q) * x.d_v);
  }
  static Words macs(const Sizes& x, Tiling) {
    const Words L = landmarks(x), rows = Words(x.n_q) + x.n_k;
    return rows * x.d + L * (rows + L) * (Words(x.d) + x.d_v) +
           6 * Words(std::get<Nystroemformer>(method_of(x)).iterations) * L * L * L;
  }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const Sizes& s = x.shape;
    const index_t L = landmarks(s);
    const auto keys = m.alloc(SlowArray::Z, {L, s.d}), values = m.alloc(SlowArray::Z, {L, s.d_v});
    {
      const auto R = m.alloc(SlowArray::S, room(s, t));
      landmarks_attend(m, x, t, R, keys, values);
      const auto Z = m.alloc(SlowArray::S, {L, L}), N = m.alloc(SlowArray::S, {L, L});
      const auto c = m.alloc(SlowArray::S, {L, 1}), u = m.alloc(SlowArray::S, {L, 1});
      const Arg A = R.cols(L);
      std::array<Arg, 2> inverse{Z.arg(), N.arg()};
      m.compute(kernel::PseudoInverseStart{}, inverse[0], A);
      for (index_t k = 0; k < std::get<Nystroemformer>(method_of(s)).iterations; ++k) {
        m.compute(kernel::PseudoInverseStep{}, inverse[1], c, u, A, inverse[0]);
        std::swap(inverse[0], inverse[1]);
      }
      m.compute(kernel::MultiplyFromLeft{}, values, c, inverse[0]);
    }
    const Blocks rows = s.pairs().row_blocks(t.br);
    for (index_t i = 0; i < rows.count(); ++i) attend_by_words(m, x, rows(i), {keys.arg(), values.arg()});
  }

  /// keys <- K~, values <- softmax(Q~ K^T) V, and the leading columns of R <- A = softmax(Q~ K~^T).
  template <class M>
  static void landmarks_attend(M& m, const ForwardOperands& x, Tiling t, const Tile<M>& R, const Tile<M>& keys,
                               const Tile<M>& values) {
    const Sizes& s = x.shape;
    const index_t L = keys.shape().rows;
    const kernel::Scores scores{x.scale};
    const auto queries = m.alloc(SlowArray::Z, {L, s.d});
    m.compute(kernel::Zero{}, queries);
    m.compute(kernel::Zero{}, keys);
    m.compute(kernel::ProjectRows{s.n_q}, queries, m.stream(x.Q.all()));
    m.compute(kernel::ProjectRows{s.n_k}, keys, m.stream(x.K.all()));
    const Arg most = R.cols(0, 1), sums = R.cols(1, 1);
    m.compute(kernel::SoftmaxInit{}, values, most, sums);
    const Blocks steps = s.pairs().key_blocks(t.bc);
    for (index_t j = 0; j < steps.count(); ++j) {
      const Range J = steps(j);
      const Arg S = R.cols(2, J.size());
      m.compute(scores, S, queries, m.stream(x.K.rows(J)));
      m.compute(kernel::OnlineSoftmax{}, S, values, most, sums);
      m.compute(kernel::Gemm{}, values, S, m.stream(x.V.rows(J)));
    }
    m.compute(kernel::DivideRows{}, values, sums);
    m.compute(scores, R.cols(L), queries, keys);
    m.compute(kernel::SoftmaxRows{}, R.cols(L), kNoWords);
  }
};

}  // namespace redblue::schedule
