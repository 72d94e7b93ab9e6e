// expect: constraints not satisfied|no matching function
#include "redblue/machines/counting.hpp"
#include "redblue/schedules/forward/flash.hpp"

// Has the words of a machine, but none of the primitives behind them.
struct Incomplete : redblue::MachineFace<Incomplete> {};

#ifdef REDBLUE_WRONG
using Machine = Incomplete;
#else
using Machine = redblue::machine::Counting;
#endif

void count(Machine& m, const redblue::schedule::ForwardOperands& x) {
  redblue::schedule::FlashForward::run(m, x, {1, 1});
}
