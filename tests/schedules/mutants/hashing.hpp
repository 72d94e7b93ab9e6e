#pragma once
#include "redblue/methods/schedules/hyper_attention.hpp"
#include "redblue/methods/schedules/reformer.hpp"
#include "redblue/methods/schedules/smyrf.hpp"

/// Slips in the methods that sort rows.
namespace redblue::test::mutants {

using namespace schedule;

enum class SmyrfSlip {
  none,
  keeps_a_word,  ///< of the sorts, while clusters attend
  projects_in_every_round,
  begins_every_round_anew,
  writes_lse_in_the_last_round,
  forgets_the_last_cluster,
};

struct SmyrfRounds {
  template <class M>
  static void run(M& m, const ForwardOperands& x, SmyrfForward::Tiling t, SmyrfSlip slip) {
    using enum SmyrfSlip;
    const index_t rounds = SmyrfForward::method(x.shape).rounds;
    const auto kept = m.alloc(SlowArray::hash_k, {slip == keeps_a_word ? 1 : 0, 1});
    sort_rows(m, x, SmyrfForward::method(x.shape), t.of_sorts());
    const Clusters all = SmyrfForward::clusters(x.shape);
    for (index_t r = 0; r < rounds; ++r) {
      if (slip == projects_in_every_round && r > 0) {
        const auto most = m.alloc(SlowArray::hash_k, {1, 1});
        project_rows(m, x.Q, x.hash_q, SmyrfForward::method(x.shape).seed, most);
      }
      const Round round{r == 0 || slip == begins_every_round_anew,
                        r == rounds - 1 && slip != writes_lse_in_the_last_round};
      for (index_t c = 0; c < all.count - (slip == forgets_the_last_cluster ? 1 : 0); ++c)
        attend_in_cluster(m, x, all, c, x.order_q.columns(r, 1), x.order_k.columns(r, 1), t.of_clusters(), round,
                          NothingElse{});
    }
  }
};

enum class HyperAttentionSlip {
  none,
  counts_in_a_second_pass,
  samples_for_every_block,  ///< brings them again
  samples_of_the_own_block_too,
  forgets_the_samples,
};

/// Keys of a block and samples pass.
struct HyperAttentionBlocks {
  template <class M>
  static void run(M& m, const ForwardOperands& x, HyperAttentionForward::Tiling t, HyperAttentionSlip slip) {
    using enum HyperAttentionSlip;
    using S = HyperAttentionForward;
    S::sort_side(m, x, x.Q, x.hash_q, x.order_q);
    S::sort_side(m, x, x.K, x.hash_k, x.order_k);
    if (slip == counts_in_a_second_pass)
      for (index_t j = 0; j < x.shape.n_k; ++j) {
        const auto id = m.load(x.hash_k.rows(j, 1));
        const auto counts = m.alloc(SlowArray::hash_k, {1, 1});
        m.compute(kernel::Zero{}, counts);
        m.compute(kernel::Count{}, counts, id);
      }
    const S::Samples samples(x.shape);
    const Clusters all = S::blocks(x.shape);
    for (index_t c = 0; c < all.count; ++c)
      attend_in_cluster(m, x, all, c, x.order_q, x.order_k, t.of_blocks(), {},
                        [&](auto& v, const auto& rows, const auto& P) {
                          if (slip == forgets_the_samples) return;
                          Range own = samples.within(all.keys(c));
                          if (slip == samples_of_the_own_block_too) own.begin = own.end;
                          for (index_t times = slip == samples_for_every_block ? 2 : 1; times > 0; --times) {
                            S::attend_to_samples(v, x, rows, P, samples, {0, own.begin});
                            S::attend_to_samples(v, x, rows, P, samples, {own.end, samples.count()});
                          }
                        });
  }
};

enum class ReformerSlip {
  none,
  reads_the_keys,
  hashes_in_every_round,
  forgets_to_wrap,  ///< the first chunk looks at no other
  begins_every_round_anew,
};

struct ReformerRounds {
  template <class M>
  static void run(M& m, const ForwardOperands& x, ReformerForward::Tiling t, ReformerSlip slip) {
    using enum ReformerSlip;
    using S = ReformerForward;
    const index_t rounds = S::method(x.shape).rounds;
    if (slip == reads_the_keys) {
      const auto K = m.load(x.K.rows(0, 1));
    }
    S::sort_rows(m, x);
    Chunks chunks = S::chunks(x.shape);
    chunks.causal = slip == forgets_to_wrap;
    for (index_t r = 0; r < rounds; ++r) {
      if (slip == hashes_in_every_round && r > 0) S::sort_rows(m, x);
      const Round round{r == 0 || slip == begins_every_round_anew, r == rounds - 1};
      attend_in_resident_chunks(m, x, chunks, x.order_q.columns(r, 1), t.of_chunks(), round);
    }
  }
};

}  // namespace redblue::test::mutants
