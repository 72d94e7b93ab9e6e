#pragma once
#include <functional>
#include <string_view>
#include <vector>

#include "redblue/machines/trace.hpp"
#include "schedules/verdict.hpp"

/// Wrong schedules, each with one slip that a person might make. A mutant is no copy of a schedule: it is the run of
/// the right one, recorded operation by operation, in which operations are left out, repeated, changed or moved.
namespace redblue::test::mutants {

using machine::Operation;
using machine::Trace;
using Operations = std::vector<Operation>;
using enum SlowArray;

/// What S does on this problem.
template <class S>
Trace recorded(const Sizes& sizes, const typename S::Tiling& t) {
  Trace trace;
  machine::Null null;
  machine::Traced<machine::Null> traced(null, trace);
  S::run(traced, typename S::Operands(sizes, 0.5), t);
  return trace;
}

// Which operations?

using Is = std::function<bool(const Operation&)>;

inline Is anything() {
  return [](const Operation&) { return true; };
}
inline Is operator&&(const Is& a, const Is& b) {
  return [=](const Operation& op) { return a(op) && b(op); };
}
inline Is operator||(const Is& a, const Is& b) {
  return [=](const Operation& op) { return a(op) || b(op); };
}
inline Is operator!(const Is& a) {
  return [=](const Operation& op) { return !a(op); };
}
/// Are words of this array copied?
inline Is copies(Operation::Kind kind, SlowArray a) {
  return [=](const Operation& op) {
    if (op.kind != kind) return false;
    const Block& b = op.args[kind == Operation::Kind::read ? 1 : 0].block;
    return b.array == a && b.shape.words() > 0;
  };
}
inline Is loads(SlowArray a) { return copies(Operation::Kind::read, a); }
inline Is stores(SlowArray a) { return copies(Operation::Kind::write, a); }
/// Does any argument fit?
inline Is has(const std::function<bool(const Arg&)>& fits) {
  return [=](const Operation& op) { return std::ranges::any_of(op.args, fits); };
}
/// Is a block of this array, in slow memory, an argument?
inline Is touches(SlowArray a) {
  return has([=](const Arg& arg) { return arg.kind == Arg::Kind::stream && arg.block.array == a; });
}
/// Is it one from this row of the array on?
inline Is touches(SlowArray a, index_t row) {
  return has(
      [=](const Arg& arg) { return arg.kind == Arg::Kind::stream && arg.block.array == a && arg.block.row >= row; });
}
template <class Kernel>
Is computes() {
  return [](const Operation& op) {
    const bool is_kernel = op.kind == Operation::Kind::run || op.kind == Operation::Kind::modify;
    return is_kernel && op.kernel.get_if<Kernel>() != nullptr;
  };
}
/// Of which the first argument is of this array.
template <class Kernel>
Is computes(SlowArray a) {
  return computes<Kernel>() && Is([=](const Operation& op) { return op.args[0].block.array == a; });
}

/// Some of those operations.
struct Pick {
  Is is;
  enum class Which { all, first, last, not_first } which = Which::all;
};
inline Pick all(Is is) { return {std::move(is), Pick::Which::all}; }
inline Pick first(Is is) { return {std::move(is), Pick::Which::first}; }
inline Pick last(Is is) { return {std::move(is), Pick::Which::last}; }
inline Pick not_first(Is is) { return {std::move(is), Pick::Which::not_first}; }

// Slips.

/// f(operation, how many tiles there are before it), in place of each of these.
template <class F>
Trace replaced(Trace trace, const Pick& pick, const F& f) {
  std::vector<std::size_t> picked;
  for (std::size_t i = 0; i < trace.operations.size(); ++i)
    if (pick.is(trace.operations[i])) picked.push_back(i);
  if (picked.empty()) throw std::logic_error("a slip is made nowhere");
  if (pick.which == Pick::Which::first) picked.resize(1);
  if (pick.which == Pick::Which::last) picked.erase(picked.begin(), picked.end() - 1);
  if (pick.which == Pick::Which::not_first) picked.erase(picked.begin());
  Operations edited;
  index_t tiles = 0;
  auto next = picked.begin();
  for (std::size_t i = 0; i < trace.operations.size(); ++i) {
    const Operation& op = trace.operations[i];
    if (next != picked.end() && *next == i) {
      const Operations instead = f(op, tiles);
      edited.insert(edited.end(), instead.begin(), instead.end());
      ++next;
    } else {
      edited.push_back(op);
    }
    tiles += (op.kind == Operation::Kind::open) - (op.kind == Operation::Kind::close);
  }
  trace.operations = std::move(edited);
  return trace;
}

inline Trace without(const Trace& trace, const Pick& pick) {
  return replaced(trace, pick, [](const Operation&, index_t) { return Operations{}; });
}
inline Trace twice(const Trace& trace, const Pick& pick) {
  return replaced(trace, pick, [](const Operation& op, index_t) { return Operations{op, op}; });
}
using Change = std::function<void(Operation&)>;
inline Trace changed(const Trace& trace, const Pick& pick, const Change& change) {
  return replaced(trace, pick, [&](Operation op, index_t) {
    change(op);
    return Operations{op};
  });
}
/// A changed one follows.
inline Trace also(const Trace& trace, const Pick& pick, const Change& change) {
  return replaced(trace, pick, [&](const Operation& op, index_t) {
    Operations both{op, op};
    change(both[1]);
    return both;
  });
}
/// Where these have a block of one array, they have one of another.
inline Trace mixed_up(const Trace& trace, const Is& is, SlowArray from, SlowArray to) {
  return changed(trace, all(is && touches(from)), [=](Operation& op) {
    for (Arg& a : op.args)
      if (a.kind == Arg::Kind::stream && a.block.array == from) a.block.array = to;
  });
}
/// The kernel has another parameter.
template <class Kernel, class Value>
Trace with(const Trace& trace, const Is& is, Value Kernel::* parameter, Value value) {
  return changed(trace, all(computes<Kernel>() && is), [&](Operation& op) {
    Kernel k = *op.kernel.get_if<Kernel>();
    k.*parameter = value;
    op.kernel = k;
  });
}

/// Before each of these the latest of those, if any, is done again.
inline Trace again(const Trace& trace, const Is& those, const Is& before) {
  std::optional<Operation> latest;
  Trace edited = replaced(trace, all(those || before), [&](const Operation& op, index_t) {
    if (those(op)) latest = op;
    return before(op) && !those(op) && latest ? Operations{*latest, op} : Operations{op};
  });
  if (edited.operations.size() == trace.operations.size()) throw std::logic_error("nothing is done again");
  return edited;
}
/// After each of these the next of those is done, too, ahead of its time.
inline Trace early(const Trace& trace, const Is& those, const Is& after) {
  Trace edited = trace;
  std::ranges::reverse(edited.operations);
  edited = again(edited, those, after);  // whose `before` is `after` when read backwards
  std::ranges::reverse(edited.operations);
  return edited;
}

/// Words of these arrays begin as 0, and not as what slow memory has of them.
inline Trace begun_anew(const Trace& trace, const std::vector<SlowArray>& arrays) {
  const Is is = [=](const Operation& op) {
    return std::ranges::any_of(arrays, [&](SlowArray a) { return loads(a)(op); });
  };
  return replaced(trace, all(is), [](const Operation& op, index_t) {
    return Operations{{.kind = Operation::Kind::run, .args = {op.args[0]}, .kernel = kernel::Zero{}}};
  });
}
/// What is stored goes to this array, too: its first column.
inline Trace also_stored(const Trace& trace, const Pick& pick, SlowArray a) {
  return also(trace, pick, [=](Operation& op) {
    op.args[0].block.array = a;
    for (Arg& arg : op.args) arg.block.col = 0, arg.block.shape.cols = 1;
  });
}
/// An operation with more words in fast memory than it needs.
inline Operations with_room(const Operation& op, index_t tiles, index_t words) {
  return {{.kind = Operation::Kind::open, .depth = tiles, .shape = {words, 1}, .args = {}},
          op,
          {.kind = Operation::Kind::close, .depth = tiles, .shape = {words, 1}, .args = {}}};
}
inline Trace with_room(const Trace& trace, const Is& is, index_t words) {
  return replaced(trace, all(is), [&](const Operation& op, index_t tiles) { return with_room(op, tiles, words); });
}
/// These words are kept from the beginning to the end.
inline Trace with_room_throughout(Trace trace, index_t words) {
  for (Operation& op : trace.operations) {
    if (op.kind == Operation::Kind::open || op.kind == Operation::Kind::close) ++op.depth;
    for (Arg& a : op.args) a.depth += a.kind == Arg::Kind::tile ? 1 : 0;
  }
  Operations around = with_room({}, 0, words);
  trace.operations.insert(trace.operations.begin(), around.front());
  trace.operations.push_back(around.back());
  return trace;
}
/// Rings of these arrays, which have `places` rows, have one row less: what took the last place takes the first one.
inline Trace with_fewer_places(Trace trace, const std::vector<SlowArray>& rings, index_t places) {
  std::vector<std::size_t> opens;
  std::vector<bool> is_ring;
  for (std::size_t i = 0; i < trace.operations.size(); ++i) {
    Operation& op = trace.operations[i];
    if (op.kind == Operation::Kind::open) {
      opens.push_back(i);
      is_ring.push_back(false);
    } else if (op.kind == Operation::Kind::close) {
      op.shape = trace.operations[opens.back()].shape;
      opens.pop_back();
      is_ring.pop_back();
    }
    for (Arg& a : op.args) {
      if (a.kind != Arg::Kind::tile || std::ranges::find(rings, a.block.array) == rings.end()) continue;
      const auto depth = static_cast<std::size_t>(a.depth);
      Operation& open = trace.operations[opens[depth]];
      if (open.shape.rows == places && !is_ring[depth]) --open.shape.rows, is_ring[depth] = true;
      if (is_ring[depth] && a.block.row + 1 == places) a.block.row = 0;
    }
  }
  return trace;
}
/// Words of this array that pass by these operations are loaded into a tile.
inline Trace resident(const Trace& trace, const Is& is, SlowArray a) {
  return replaced(trace, all(is && touches(a)), [&](Operation op, index_t tiles) {
    for (Arg& arg : op.args) {
      if (arg.kind != Arg::Kind::stream || arg.block.array != a) continue;
      const Arg stream = arg, tile{Arg::Kind::tile, tiles, {.array = a, .shape = arg.shape()}};
      arg = tile;
      return Operations{{.kind = Operation::Kind::open, .depth = tiles, .shape = tile.shape(), .args = {}},
                        {.kind = Operation::Kind::read, .args = {tile, stream}},
                        op,
                        {.kind = Operation::Kind::close, .depth = tiles, .shape = tile.shape(), .args = {}}};
    }
    return Operations{op};
  });
}

/// The parts of a run between which fast memory is empty.
inline std::vector<Operations> phases_of(const Trace& trace) {
  std::vector<Operations> phases(1);
  index_t tiles = 0;
  for (const Operation& op : trace.operations) {
    phases.back().push_back(op);
    tiles += (op.kind == Operation::Kind::open) - (op.kind == Operation::Kind::close);
    if (tiles == 0 && op.kind == Operation::Kind::close) phases.emplace_back();
  }
  return phases;
}
inline Trace joined(Trace trace, const std::vector<Operations>& phases) {
  trace.operations.clear();
  for (const Operations& phase : phases) trace.operations.insert(trace.operations.end(), phase.begin(), phase.end());
  return trace;
}
/// Has a phase such an operation?
inline bool has(const Operations& phase, const Is& is) { return std::ranges::any_of(phase, is); }
inline std::vector<Operations> phases_of(const Trace& trace, const Is& of_which_some_have) {
  if (!has(trace.operations, of_which_some_have)) throw std::logic_error("a slip is made in no phase");
  return phases_of(trace);
}

inline Trace without_phases(const Trace& trace, const Is& with) {
  std::vector<Operations> phases = phases_of(trace, with);
  std::erase_if(phases, [&](const Operations& p) { return has(p, with); });
  return joined(trace, phases);
}
inline Trace phases_first(const Trace& trace, const Is& with, bool are_first = true) {
  std::vector<Operations> phases = phases_of(trace, with);
  std::ranges::stable_partition(phases, [&](const Operations& p) { return has(p, with) == are_first; });
  return joined(trace, phases);
}
inline Trace phases_last(const Trace& trace, const Is& with) { return phases_first(trace, with, false); }
inline Trace phases_twice(const Trace& trace, const Is& with) {
  std::vector<Operations> phases;
  for (const Operations& p : phases_of(trace, with)) phases.insert(phases.end(), has(p, with) ? 2 : 1, p);
  return joined(trace, phases);
}
inline Trace phases_reversed(const Trace& trace) {
  std::vector<Operations> phases = phases_of(trace);
  std::ranges::reverse(phases);
  return joined(trace, phases);
}
/// A slip in some phases only.
template <class Slip>
Trace in_phases(const Trace& trace, const Is& with, const Slip& slip) {
  std::vector<Operations> phases = phases_of(trace, with);
  for (Operations& p : phases)
    if (has(p, with)) {
      Trace phase = trace;
      phase.operations = p;
      p = slip(phase).operations;
    }
  return joined(trace, phases);
}

// Are they caught?

struct Mutant {
  std::string_view slip;
  Trace run;
};

/// What the data-free checks say of this run, which should be one of S.
template <class S>
std::string verdict_of(const Sizes& sizes, const typename S::Tiling& t, const Trace& run) {
  return test::verdict<S>(sizes, t, [&](auto& m, const auto&) { machine::detail::play(run, m); });
}
template <class S>
void expect_caught(const Sizes& sizes, const typename S::Tiling& t, const std::vector<Mutant>& list) {
  EXPECT_EQ(verdict_of<S>(sizes, t, recorded<S>(sizes, t)), "") << "the schedule itself";
  for (const Mutant& m : list) EXPECT_NE(verdict_of<S>(sizes, t, m.run), "") << m.slip;
}

}  // namespace redblue::test::mutants
