#include "redblue/schedules/lists/lists.hpp"

namespace redblue::plan {

const Registry& Registry::built_in() {
  static const Registry registry = [] {
    Registry r;
    for (const auto add :
         {add_forward, add_backward, add_gradient, add_projected, add_scores, add_merge, add_approximate})
      add(r);
    return r;
  }();
  return registry;
}

}  // namespace redblue::plan
