#include "lists.hpp"
#include "redblue/describe.hpp"
#include "redblue/schedule/approximate/coreset.hpp"
#include "redblue/schedule/approximate/coreset_spilled.hpp"
#include "redblue/schedule/approximate/hyper_attention.hpp"
#include "redblue/schedule/approximate/linear_attention.hpp"
#include "redblue/schedule/approximate/linear_attention_tiled.hpp"
#include "redblue/schedule/approximate/linformer.hpp"
#include "redblue/schedule/approximate/linformer_spilled.hpp"
#include "redblue/schedule/approximate/nystroemformer.hpp"
#include "redblue/schedule/approximate/performer.hpp"
#include "redblue/schedule/approximate/performer_tiled.hpp"
#include "redblue/schedule/approximate/polynomial.hpp"
#include "redblue/schedule/approximate/polynomial_backward.hpp"
#include "redblue/schedule/approximate/polynomial_clusters.hpp"
#include "redblue/schedule/approximate/polynomial_pairs.hpp"
#include "redblue/schedule/approximate/polynomial_rows.hpp"
#include "redblue/schedule/approximate/polynomial_rows_tiled.hpp"
#include "redblue/schedule/approximate/polynomial_tiled.hpp"
#include "redblue/schedule/approximate/reformer.hpp"
#include "redblue/schedule/approximate/smyrf.hpp"
#include "redblue/schedule/approximate/uniform_sample.hpp"

namespace redblue::plan {

using namespace schedule;

void add_approximate(Registry& registry) {
  registry.add(describe<PolynomialForward>());
  registry.add(describe<PolynomialTiledForward>());
  registry.add(describe<PolynomialRowsForward>());
  registry.add(describe<PolynomialRowsTiledForward>());
  registry.add(describe<PolynomialPairsForward>());
  registry.add(describe<PolynomialClustersForward>());
  registry.add(describe<PolynomialTwoStateBackward>());
  registry.add(describe<PolynomialBackward>());
  registry.add(describe<LinearAttentionForward>());
  registry.add(describe<LinearAttentionTiledForward>());
  registry.add(describe<PerformerForward>());
  registry.add(describe<PerformerTiledForward>());
  registry.add(describe<LinformerForward>());
  registry.add(describe<LinformerSpilledForward>());
  registry.add(describe<NystroemformerForward>());
  registry.add(describe<SmyrfForward>());
  registry.add(describe<HyperAttentionForward>());
  registry.add(describe<ReformerForward>());
  registry.add(describe<CoresetForward>());
  registry.add(describe<CoresetSpilledForward>());
  registry.add(describe<UniformSampleForward>());
}

}  // namespace redblue::plan
