#include "compiled.hpp"
#include "lists.hpp"
#include "redblue/schedule/approximate/polynomial.hpp"
#include "redblue/schedule/approximate/polynomial_backward.hpp"
#include "redblue/schedule/approximate/polynomial_rows.hpp"
#include "redblue/schedule/approximate/polynomial_tiled.hpp"

namespace redblue::plan {

using namespace schedule;

void add_approximate(Registry& registry) {
  registry.add(describe_fast<PolynomialForward>());
  registry.add(describe_fast<PolynomialTiledForward>());
  registry.add(describe_fast<PolynomialRowsForward>());
  registry.add(describe_fast<PolynomialTwoStateBackward>());
  registry.add(describe_fast<PolynomialBackward>());
}

}  // namespace redblue::plan
