#include "redblue/methods/kernels/list.hpp"

#include "redblue/methods/schedules/coreset.hpp"
#include "redblue/methods/schedules/coreset_spilled.hpp"
#include "redblue/methods/schedules/hyper_attention.hpp"
#include "redblue/methods/schedules/linear_attention.hpp"
#include "redblue/methods/schedules/linear_attention_tiled.hpp"
#include "redblue/methods/schedules/linformer.hpp"
#include "redblue/methods/schedules/linformer_spilled.hpp"
#include "redblue/methods/schedules/list.hpp"
#include "redblue/methods/schedules/nystroemformer.hpp"
#include "redblue/methods/schedules/performer.hpp"
#include "redblue/methods/schedules/performer_tiled.hpp"
#include "redblue/methods/schedules/polynomial.hpp"
#include "redblue/methods/schedules/polynomial_backward.hpp"
#include "redblue/methods/schedules/polynomial_clusters.hpp"
#include "redblue/methods/schedules/polynomial_pairs.hpp"
#include "redblue/methods/schedules/polynomial_rows.hpp"
#include "redblue/methods/schedules/polynomial_rows_tiled.hpp"
#include "redblue/methods/schedules/polynomial_tiled.hpp"
#include "redblue/methods/schedules/reformer.hpp"
#include "redblue/methods/schedules/smyrf.hpp"
#include "redblue/methods/schedules/uniform_sample.hpp"
#include "redblue/schedules/describe.hpp"

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
