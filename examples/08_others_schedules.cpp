// A schedule that others published, as a text of this language: examples/cyclic_quorums.hpp. It is held to redblue's
// claims, and its words are counted beside redblue's own on the same problems.
#include <cstdio>

#include "cyclic_quorums.hpp"
#include "redblue/attention.hpp"
#include "redblue/claims.hpp"
#include "redblue/schedule.hpp"

using namespace redblue;

int main() {
  plan::Registry registry = plan::Registry::built_in();
  registry.add(describe<schedule::CyclicQuorumsForward>());
  claims::check(*registry.find(Operation::forward, "cyclic_quorums"), 50);

  std::printf("words over the lower bound, forward, one head\n%8s %5s %9s  %s\n", "n", "d", "M", "schedule");
  bool agree = true;
  for (const index_t n : {4096, 16'384})
    for (const index_t M : {65'536, 262'144, 1'048'576})
      for (const char* name : {"", "flash", "key_outer", "cyclic_quorums"}) {
        const Problem problem{.n_q = n, .n_k = n, .d = 64, .d_v = 64};
        plan::Plan plan;
        try {
          plan = plan::make_plan(problem, {.M = M, .schedule = name, .registry = &registry});
        } catch (const Error&) {
          std::printf("%8td %5d %9td  %s does not fit\n", n, 64, M, name);
          continue;
        }
        if (n == 4096) agree = agree && count(plan).io == plan.row().io;
        std::printf("%8td %5d %9td  %-14s %6.2f\n", n, 64, M, std::string(plan.row().schedule).c_str(),
                    plan.row().io.total().to_double() / plan.bound.words.to_double());
      }
  return agree ? 0 : 1;
}
