// How many words must attention move between a fast memory of M words and the slow memory behind it, how many does the
// best schedule move, and does it really? No data is needed for any of the three answers.
#include <iostream>

#include "redblue/attention.hpp"

int main() {
  redblue::Problem problem;  // one head: softmax(Q K^T / sqrt(d)) V
  problem.n_q = problem.n_k = 1 << 20;
  problem.d = problem.d_v = 64;
  redblue::plan::Options options;
  options.M = 1 << 22;  // 16 MiB of fp32: a last-level cache

  // The plan ranks every schedule by its formula, an exact count of words, and knows the proven lower bound.
  const redblue::plan::Plan plan = redblue::plan::make_plan(problem, options);
  const redblue::plan::Row& best = plan.row();
  std::cout << "n = 2^20: " << plan.reason << "\n  formula " << best.io.total().str() << " words, by " << best.schedule;

  // Counting runs the very loops of the schedule on a machine that does nothing but count.
  const redblue::Measured counted = redblue::count(plan);
  std::cout << "\n  counted " << counted.io.total().str() << " words, at most " << counted.peak.str() << " resident"
            << "\n  bound   " << plan.bound.words.str() << " words, theorem " << plan.bound.name << "; ratio "
            << best.ratio.value() << '\n';

  // A formula answers at once for sizes that no one will ever count: n = 2^40, that is 2^80 scores.
  problem.n_q = problem.n_k = redblue::index_t{1} << 40;
  const redblue::plan::Plan vast = redblue::plan::make_plan(problem, options);
  std::cout << "n = 2^40: formula " << vast.row().io.total().str() << " words, bound " << vast.bound.words.str()
            << ", ratio " << vast.row().ratio.value() << '\n';

  const bool exact = counted.io == best.io && counted.peak == best.footprint;
  const bool above = best.io.total() >= plan.bound.words && vast.row().io.total() >= vast.bound.words;
  return exact && above ? 0 : 1;
}
