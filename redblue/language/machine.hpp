#pragma once
#include <array>
#include <concepts>
#include <span>

#include "redblue/language/arg.hpp"
#include "redblue/language/kernel.hpp"
#include "redblue/language/layout.hpp"

/// The words a schedule is written in: load, alloc, stream, compute, update, store, each. docs/model.md says what each
/// costs. A machine M derives from MachineFace<M>, which turns these words into seven primitives:
///
///   index_t open(SlowArray, Shape, Layout)            a tile for such words is born on top of the stack; returns its
///                                                     depth
///   void    close(index_t depth, SlowArray, Shape)    and evicted; the topmost goes first
///   void    read(const Arg& tile, const Block&)       slow -> fast
///   void    write(const Block&, const Arg& tile)      fast -> slow
///   void    run(kernel, span<const Arg>)              kernel on tiles and streams
///   void    modify(kernel, span<const Arg>)           the same, args[0] a block of slow memory, rewritten word by word
///   void    each(index_t n, body)                     body(worker, i) for i < n, in any order; worker is the machine
///                                                     itself, or one that holds no tile, on a thread of its own
///
/// and, which cost no words and change no result,
///
///   void    store_hint(index_t depth, const Block&)   this fresh tile has room for that block and may be stored there
///   void    read_hint(const Block&)                   this block will be read next
///   void    in_turn(index_t n, body)                  body(i) for i < n, one after another: rounds that change little
///                                                     from one to the next, so that some tell what all would take
namespace redblue {

/// A tile in fast memory: the copy of a block, or a fresh one. A tile is resident as long as it is in scope: load or
/// alloc makes it, the closing brace evicts it. It cannot be copied or moved, so lifetimes nest, fast memory is a
/// stack, and its peak is the footprint. A schedule cannot read a tile's numbers; one that
/// depends on them asks for them (language/data_machine.hpp).
template <class Machine>
class Tile {
 public:
  /// Holds nothing yet.
  Tile(Machine& m, SlowArray array, Shape shape, Layout layout)
      : machine_(m), arg_{Arg::Kind::tile, m.open(array, shape, layout), {.array = array, .shape = shape}} {}
  /// Holds a copy of b.
  Tile(Machine& m, const Block& b, Layout layout) : Tile(m, b.array, b.shape, layout) { m.read(arg_, b); }
  /// Holds nothing yet, and has room for b.
  struct Fresh {};
  Tile(Machine& m, Fresh, const Block& b, Layout layout) : Tile(m, b.array, b.shape, layout) {
    m.store_hint(arg_.depth, b);
  }
  Tile(const Tile&) = delete;
  Tile& operator=(const Tile&) = delete;
  ~Tile() { machine_.close(arg_.depth, arg_.block.array, arg_.block.shape); }

  Shape shape() const { return arg_.block.shape; }
  const Arg& arg() const { return arg_; }
  /// Rows and columns from these on, as an argument; the leading ones are the part that a ragged last block uses.
  Arg part(Shape s, index_t row = 0, index_t col = 0) const {
    Arg a = arg_;
    a.block.shape = s;
    a.block.row = row;
    a.block.col = col;
    return a;
  }
  Arg cols(index_t n) const { return part({shape().rows, n}); }
  Arg cols(index_t first, index_t n) const { return part({shape().rows, n}, 0, first); }
  Arg rows(index_t first, index_t n) const { return part({n, shape().cols}, first); }

 private:
  Machine& machine_;
  Arg arg_;
};

namespace detail {
template <class M>
const Arg& to_arg(const Tile<M>& t) {
  return t.arg();
}
inline const Arg& to_arg(const Arg& a) { return a; }
inline Arg to_arg(const Stream& s) { return Arg::streaming(s.block); }

/// A streamed word is dropped after its use, so a kernel may only read such an argument.
template <class K, class... Args>
consteval bool streams_are_only_read() {
  static_assert(sizeof...(Args) == kernel::arity<K>, "this kernel takes another number of arguments");
  std::size_t i = 0;
  bool ok = true;
  ((ok = ok && (!std::same_as<Args, Stream> || K::access[i] == kernel::Access::read), ++i), ...);
  return ok;
}
}  // namespace detail

template <class Self>
class MachineFace {
 public:
  /// How many workers the machine has, each with its own fast memory, and the index of this worker. Machines with more
  /// than one worker hide these two.
  static constexpr int workers() { return 1; }
  static constexpr int worker() { return 0; }
  // Hints mean nothing to most machines.
  static void store_hint(index_t, const Block&) {}
  static void read_hint(const Block&) {}
  template <class Body>
  static void in_turn(index_t n, const Body& body) {
    for (index_t i = 0; i < n; ++i) body(i);
  }

  /// A tile holding a copy of `b`: |b| reads, |b| words until the end of its scope.
  [[nodiscard]] Tile<Self> load(const Block& b, Layout layout = Layout::row_major) { return {self(), b, layout}; }
  /// A tile that holds nothing yet: no I/O, |shape| words until the end of its scope. `array` says what kind of words
  /// they will be, of those that slow memory could hold: their width in fast memory depends on it.
  [[nodiscard]] Tile<Self> alloc(SlowArray array, Shape shape, Layout layout = Layout::row_major) {
    return {self(), array, shape, layout};
  }
  /// An empty tile with room for b. The machine may expect that it will be stored there.
  [[nodiscard]] Tile<Self> alloc(const Block& b, Layout layout = Layout::row_major) {
    return {self(), typename Tile<Self>::Fresh{}, b, layout};
  }
  /// `b` as an argument that streams past word by word: |b| reads when its consumer runs, one word of footprint.
  /// The consumer's formula must allow that each word is used once and dropped; a machine's loops may walk the block in
  /// another order (docs/model.md).
  [[nodiscard]] static Stream stream(const Block& b) { return {b}; }
  /// Refills a tile that is already resident, or a part of one: |b| reads.
  template <class Target>
  void load_into(const Target& t, const Block& b) {
    self().read(detail::to_arg(t), b);
  }

  template <kernel::Kernel K, class... Args>
  void compute(const K& k, const Args&... args) {
    static_assert(detail::streams_are_only_read<K, Args...>(),
                  "only an argument that the kernel reads may be streamed");
    const std::array<Arg, sizeof...(Args)> list{detail::to_arg(args)...};
    self().run(k, std::span<const Arg>(list));
  }
  /// Read-modify-write of `b` through one word: |b| reads (none if k.first), |b| writes.
  template <kernel::Kernel K, class... Args>
    requires requires(const K& k) { k.first; }
  void update(const K& k, const Block& b, const Args&... args) {
    static_assert(detail::streams_are_only_read<K, Block, Args...>(),
                  "only an argument that the kernel reads may be streamed");
    const std::array<Arg, 1 + sizeof...(Args)> list{detail::to_arg(Stream{b}), detail::to_arg(args)...};
    self().modify(k, std::span<const Arg>(list));
  }
  /// Copies a tile, or a part of one, to slow memory: |b| writes. The tile stays.
  template <class Source>
  void store(const Source& t, const Block& b) {
    self().write(b, detail::to_arg(t));
  }

 private:
  Self& self() { return static_cast<Self&>(*this); }
};

/// A machine that always has one worker.
template <class M>
concept OneWorker = requires { requires M::workers() == 1; };

namespace detail {
/// A machine takes a kernel of any type, so one of this.
struct SomeKernel {
  static constexpr std::string_view name = "some";
  static constexpr std::array access{kernel::Access::update};
  bool first = false;
};
}  // namespace detail

/// What a schedule needs from its machine: all of its primitives.
template <class M>
concept Machine = std::derived_from<M, MachineFace<M>> &&
                  requires(M& m, const Arg& a, const Block& b, std::span<const Arg> args, detail::SomeKernel k) {
                    { m.open(b.array, b.shape, Layout::row_major) } -> std::same_as<index_t>;
                    m.close(index_t{}, b.array, b.shape);
                    m.read(a, b);
                    m.write(b, a);
                    m.run(k, args);
                    m.modify(k, args);
                    m.each(index_t{}, [](M&, index_t) {});
                    m.store_hint(index_t{}, b);
                    m.read_hint(b);
                    m.in_turn(index_t{}, [](index_t) {});
                  };

}  // namespace redblue
