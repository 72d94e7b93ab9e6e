#include "compiled.hpp"
#include "lists.hpp"
#include "redblue/schedule/approximate/coreset.hpp"
#include "redblue/schedule/approximate/hyper_attention.hpp"
#include "redblue/schedule/approximate/linear_attention.hpp"
#include "redblue/schedule/approximate/linformer.hpp"
#include "redblue/schedule/approximate/nystroemformer.hpp"
#include "redblue/schedule/approximate/performer.hpp"
#include "redblue/schedule/approximate/polynomial.hpp"
#include "redblue/schedule/approximate/polynomial_backward.hpp"
#include "redblue/schedule/approximate/polynomial_pairs.hpp"
#include "redblue/schedule/approximate/polynomial_rows.hpp"
#include "redblue/schedule/approximate/polynomial_tiled.hpp"
#include "redblue/schedule/approximate/reformer.hpp"
#include "redblue/schedule/approximate/smyrf.hpp"

namespace redblue::plan {

using namespace schedule;

void add_approximate(Registry& registry) {
  registry.add(describe_fast<PolynomialForward>());
  registry.add(describe_fast<PolynomialTiledForward>());
  registry.add(describe_fast<PolynomialRowsForward>());
  registry.add(describe_fast<PolynomialPairsForward>());
  registry.add(describe_fast<PolynomialTwoStateBackward>());
  registry.add(describe_fast<PolynomialBackward>());
  registry.add(describe_fast<LinearAttentionForward>());
  registry.add(describe_fast<PerformerForward>());
  registry.add(describe_fast<LinformerForward>());
  registry.add(describe_fast<NystroemformerForward>());
  registry.add(describe_fast<SmyrfForward>());
  registry.add(describe_fast<HyperAttentionForward>());
  registry.add(describe_fast<ReformerForward>());
  registry.add(describe_fast<CoresetForward>());
}

}  // namespace redblue::plan
