#pragma once
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "redblue/kernels/kinds.hpp"
#include "redblue/machines/passing.hpp"

namespace redblue::machine {

/// One operation of a schedule, as it happened.
struct Operation {
  enum class Kind : std::uint8_t { open, close, read, write, run, modify, step, decide, index };
  Kind kind;
  index_t depth = 0;  ///< open, close: the tile; step: which round of an `each`; decide, index: the answer
  Shape shape{};      ///< open, close
  Layout layout{};    ///< open
  std::vector<Arg>
      args;  ///< read: tile, block; write: block, tile; run, modify: the arguments; decide, index: the word
  kernel::PlainKernel kernel{};  ///< run, modify
};

/// The operations of one run of a schedule: composites as their parts, tiles named by their depth.
struct Trace {
  std::vector<Operation> operations;
  std::size_t most = 1'000'000;  ///< recording more throws InvalidProblem
  /// The patterns that kernels point at, in the order of their first use.
  std::vector<std::shared_ptr<const Pattern>> patterns{};

  /// Keeps the pattern at this place, if there is one, as long as the trace.
  void keep(const Place* place) {
    if (place == nullptr || place->mask.pattern == nullptr) return;
    for (const auto& known : patterns)
      if (known.get() == place->mask.pattern) return;
    patterns.push_back(place->mask.pattern->shared_from_this());
  }
};

/// One line per operation; docs/machines.md describes the form.
void write_text(std::ostream& out, const Trace& trace);
/// Reads it back. Throws InvalidProblem naming the line that is not an operation: not of the form, or of sizes,
/// parameters or shapes that no schedule can give to a machine.
Trace read_text(std::istream& in);

/// Throws InvalidProblem naming the first operation that no machine can run: it is not a valid operation (as for
/// read_text), it uses a tile or a rectangle of one that does not exist, tiles do not leave in reverse order or at all,
/// or the counts exceed 63 bits.
void check(const Trace& trace);
/// Also throws if a block lies outside `arrays`.
void check(const Trace& trace, std::span<const SlowMatrix> arrays);

namespace detail {
[[noreturn]] void throw_trace_full(std::size_t most);
[[noreturn]] void throw_other_data(index_t answer, index_t recorded);
/// What is wrong with the operation, whatever came before it; empty if nothing.
std::string fault_of(const Operation& op);
/// A kernel under a pattern names it by its place among these.
std::string to_text(const Operation& op, std::span<const std::shared_ptr<const Pattern>> patterns = {});
}  // namespace detail

/// Records what passes through another machine, one round of an `each` after another.
template <class Base>
class Traced : public Passing<Traced<Base>, Base> {
  using Passes = Passing<Traced, Base>;

 public:
  Traced(Base& base, Trace& trace) : Passes(base), trace_(trace) {}

  index_t open(SlowArray array, Shape s, Layout layout) {
    add({.kind = Operation::Kind::open, .depth = depth_, .shape = s, .layout = layout, .args = {}});
    Passes::open(array, s, layout);
    return depth_++;
  }
  void close(index_t depth, SlowArray array, Shape s) {
    // A tile is evicted by a destructor, which must not throw: closing does not count against the limit.
    trace_.operations.push_back({.kind = Operation::Kind::close, .depth = depth, .shape = s, .args = {}});
    Passes::close(depth, array, s);
    --depth_;
  }
  void read(const Arg& tile, const Block& b) {
    add({.kind = Operation::Kind::read, .args = {tile, Arg::streaming(b)}});
    Passes::read(tile, b);
  }
  void write(const Block& b, const Arg& tile) {
    add({.kind = Operation::Kind::write, .args = {Arg::streaming(b), tile}});
    Passes::write(b, tile);
  }
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    kernel::for_parts(k, args, [&](const auto& part, std::span<const Arg> a) {
      trace_.keep(kernel::place_of(part));
      add({.kind = Operation::Kind::run, .args = {a.begin(), a.end()}, .kernel = kernel::PlainKernel(part)});
    });
    Passes::run(k, args);
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    trace_.keep(kernel::place_of(k));
    add({.kind = Operation::Kind::modify, .args = {args.begin(), args.end()}, .kernel = kernel::PlainKernel(k)});
    Passes::modify(k, args);
  }
  index_t read_index(Question question, const Arg& word, index_t worst)
    requires DataMachine<Base>
  {
    const index_t answer = Passes::read_index(question, word, worst);
    const auto kind = question == Question::decision ? Operation::Kind::decide : Operation::Kind::index;
    add({.kind = kind, .depth = answer, .args = {word}});
    return answer;
  }
  template <class Body>
  void each(index_t n, const Body& body) {
    for (index_t i = 0; i < n; ++i) {
      add({.kind = Operation::Kind::step, .depth = i, .args = {}});
      body(*this, i);
    }
  }

 private:
  void add(Operation op) {
    if (trace_.operations.size() >= trace_.most) detail::throw_trace_full(trace_.most);
    trace_.operations.push_back(std::move(op));
  }

  Trace& trace_;
  index_t depth_ = 0;
};

namespace detail {
template <class M>
void play(const Trace& trace, M& m) {
  for (const Operation& op : trace.operations) switch (op.kind) {
      case Operation::Kind::open:
        m.open({}, op.shape, Layout::row_major);
        break;
      case Operation::Kind::close:
        m.close(op.depth, {}, op.shape);
        break;
      case Operation::Kind::read:
        m.read(op.args[0], op.args[1].block);
        break;
      case Operation::Kind::write:
        m.write(op.args[0].block, op.args[1]);
        break;
      case Operation::Kind::run:
        m.run(op.kernel.any(), op.args);
        break;
      case Operation::Kind::modify:
        m.modify(op.kernel.any(), op.args);
        break;
      case Operation::Kind::step:
        break;
      case Operation::Kind::decide:
      case Operation::Kind::index: {
        if constexpr (DataMachine<M>) {
          const auto question = op.kind == Operation::Kind::decide ? Question::decision : Question::index;
          if (const index_t answer = m.read_index(question, op.args[0], op.depth); answer != op.depth)
            throw_other_data(answer, op.depth);
        }
        break;
      }
    }
}
}  // namespace detail

/// Plays a trace on a machine, operation by operation. It holds the parts of composite kernels, so tiles lie plain: a
/// machine that runs composites as one implementation may round in other places than a replay does. Throws what check()
/// throws, before anything is run; and InvalidProblem where the numbers of the machine lead to another decision than
/// the trace took. `arrays` are those of the machine: a block outside them would be read and written all the same.
template <class M>
void replay(const Trace& trace, M& m, std::span<const SlowMatrix> arrays) {
  check(trace, arrays);
  detail::play(trace, m);
}
/// Plays a trace on a machine without data, where every block is as good as another. A machine with data must hold the
/// arrays on which the trace was recorded.
template <class M>
void replay(const Trace& trace, M& m) {
  check(trace);
  detail::play(trace, m);
}

}  // namespace redblue::machine
