#pragma once
#include <string>

#include "redblue/language/error.hpp"
#include "redblue/machines/checked.hpp"
#include "redblue/machines/counting.hpp"
#include "redblue/schedules/parts/workspace.hpp"

namespace redblue::test {

/// What the data-free checks say of run(machine, operands), which should be S with this tiling: empty if they find
/// nothing.
template <class S, class Run>
std::string verdict(const Sizes& sizes, const typename S::Tiling& t, const Run& run) {
  using Operands = typename S::Operands;
  const Operands x(sizes, 0.5);
  machine::Null null;
  machine::Counted<machine::Null> counted(null);
  machine::Referee referee(1'000'000);
  for (const SlowArray a : Operands::inputs) referee.input(schedule::matrix_of(x, a));
  for (const SlowArray a : Operands::outputs)
    sizes.accumulate ? referee.given_output(schedule::matrix_of(x, a)) : referee.output(schedule::matrix_of(x, a));
  for (const SlowMatrix& m : schedule::workspace_of<S>(x, t)) referee.workspace(m);
  machine::Checked<machine::Counted<machine::Null>> checked(counted, referee);
  try {
    run(checked, x);
    referee.finish();
  } catch (const RuleError& e) {
    return e.what();
  }
  if (!(counted.io() == S::io(sizes, t))) return "words differ from the formula";
  if (counted.peak() != S::footprint(sizes, t)) return "peak differs from the footprint";
  if (counted.macs() != S::macs(sizes, t)) return "multiply-adds differ from the formula";
  return "";
}

}  // namespace redblue::test
