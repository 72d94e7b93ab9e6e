#pragma once
#include <optional>
#include <utility>

#include "redblue/kernels/registry.hpp"
#include "redblue/language/machine.hpp"
#include "redblue/levels/division.hpp"

/// How a level of memory carries out one call of a kernel whose arguments lie in the level above: the schedule of the
/// inner levels of a nest. It is the same text for every kernel and every level.
namespace redblue::levels {

/// A call: the kernel, how it divides, and the arguments as blocks of the memory above.
struct Call {
  const kernel::AnyKernel& k;
  const Division& division;
  std::span<const Block> args;
  const PerLetter& sizes;  ///< of ranges
  bool last;               ///< do implementations run the parts?

  Block at(std::size_t i, const Ranges& ranges) const {
    const Block& b = args[i];
    const Range rows = division.rows(i, b.shape, ranges), cols = division.cols(i, b.shape, ranges);
    return {b.array, b.instance, b.row + rows.begin, b.col + cols.begin, {rows.size(), cols.size()}};
  }
  bool streams(std::size_t i) const { return division.has(i, division.streams()); }
  kernel::Access access(std::size_t i) const { return kernel::access_of(k, i); }
  bool reads(std::size_t i) const { return access(i) != kernel::Access::write && !division.is_scratch(i); }
  bool writes(std::size_t i) const { return access(i) != kernel::Access::read && !division.is_scratch(i); }
  /// How the kernel would like this argument to lie where it is a tile.
  Layout layout(std::size_t i) const {
    const std::span<const Layout> wishes = k.kind().tile_layouts;
    return wishes.empty() || may_be_narrow(wishes[i]) ? Layout::row_major : wishes[i];
  }
};

/// Tiles for some of the arguments: those that the call reads are loaded.
template <class W>
class ArgTiles {
 public:
  void open(W& w, const Call& call, std::size_t i, const Block& b) {
    if (call.reads(i))
      tiles_[i].emplace(w, b, call.layout(i));
    else if (call.writes(i))
      tiles_[i].emplace(w, typename Tile<W>::Fresh{}, b, call.layout(i));
    else  // where a level below runs the parts, it has the words
      tiles_[i].emplace(w, b.array, call.last ? b.shape : Shape{0, 0}, call.layout(i));
  }
  bool has(std::size_t i) const { return tiles_[i].has_value(); }
  const Tile<W>& operator[](std::size_t i) const { return *tiles_[i]; }
  void store(W& w, const Call& call, std::size_t i, const Block& b) const {
    if (has(i) && call.writes(i)) w.store(*tiles_[i], b);
  }

 private:
  std::array<std::optional<Tile<W>>, kernel::Axes::kMost> tiles_;  // closed from the last to the first, as a stack
};

/// One range of the letter that streams, or a call without one: what is read once passes, the rest of what has
/// the letter is a tile for this range.
template <class W>
void step(W& w, const Call& call, const Ranges& at, bool begins, const ArgTiles<W>& held, const ArgTiles<W>& scratch) {
  ArgTiles<W> own;
  std::array<Arg, kernel::Axes::kMost> args;
  const std::size_t n = call.args.size();
  for (std::size_t i = 0; i < n; ++i) {
    const Block b = call.at(i, at);
    if (held.has(i))
      args[i] = held[i].part(b.shape);
    else if (scratch.has(i))
      args[i] = scratch[i].part(b.shape);
    else if (b.shape.words() == 0 || call.division.passes(i))
      args[i] = Arg::streaming(b);
    else
      own.open(w, call, i, b);
    if (own.has(i)) args[i] = own[i].part(b.shape);
  }
  const kernel::Part part{at['i'].begin, at['j'].begin, begins};
  const kernel::PlainKernel k(call.k.kind(), call.k.part(part), call.k.first() && begins);
  w.run(k.any(), std::span<const Arg>(args.data(), n));
  for (std::size_t i = 0; i < n; ++i) own.store(w, call, i, call.at(i, at));
}

/// Calls step(w, at) for one range after another of the letter that streams. A machine that only adds up words takes
/// those between the first and the last together: they have the same shapes.
template <class W, class Step>
void for_steps(W& w, const Division& d, const PerLetter& sizes, Ranges at, const Step& step) {
  const char streams = d.streams();
  if (streams == '.') return step(w, at);
  const Range all = d.streamed(at);
  const index_t size = sizes[streams];
  for (index_t j = all.begin; j < all.end; j += size) {
    at[streams] = {j, std::min(all.end, j + size)};
    const index_t alike = j == all.begin ? 1 : (all.end - j) / size;
    if constexpr (requires { w.add_alike(alike, step, at); })
      if (alike > 1) {
        w.add_alike(alike, step, at);
        j += (alike - 1) * size;
        continue;
      }
    step(w, at);
  }
}

/// Carries out a part of the call: what lacks the letter that streams stays in tiles meanwhile.
template <class W>
void carry_out_part(W& w, const Call& call, Ranges at) {
  const Division& d = call.division;
  const char streams = d.streams();
  const bool passes = streams != '.';
  ArgTiles<W> held, scratch;
  for (std::size_t i = 0; i < call.args.size(); ++i) {
    if (call.streams(i) || call.args[i].shape.words() == 0) continue;
    held.open(w, call, i, call.at(i, at));
  }
  Ranges first = at;
  if (passes) {
    const Range all = d.streamed(at);
    first[streams] = {all.begin, std::min(all.end, all.begin + call.sizes[streams])};
  }
  for (std::size_t i = 0; i < call.args.size(); ++i)
    if (call.streams(i) && d.is_scratch(i) && call.args[i].shape.words() > 0)
      scratch.open(w, call, i, call.at(i, first));
  bool begins = true;
  for_steps(w, d, call.sizes, at,
            [&](W& on, const Ranges& here) { step(on, call, here, std::exchange(begins, false), held, scratch); });
  for (std::size_t i = 0; i < call.args.size(); ++i) held.store(w, call, i, call.at(i, at));
}

template <Machine M>
void carry_out(M& m, const Call& call) {
  m.each(call.division.parts(call.sizes), [&](auto& w, index_t b) {
    const Ranges at = call.division.part(call.sizes, b);
    if (call.division.streams() != '.' && call.division.streamed(at).size() == 0) return;
    carry_out_part(w, call, at);
  });
}

}  // namespace redblue::levels
