#pragma once
#include "redblue/attention.hpp"

namespace redblue {

/// The one place where schedules and machines meet: the chosen schedule, once for each batch and key-value head.
template <class M>
void execute(M& m, const plan::Plan& plan) {
  const Problem& p = plan.problem;
  std::visit(
      [&]<class S>(const plan::Choice<S>& choice) {
        m.each(p.instances(), [&](auto& w, index_t instance) {
          S::run(w, schedule::Forward(p.shape(), p.scale_or_default(), instance), choice.tiling);
        });
      },
      plan.row().choice);
}

}  // namespace redblue
