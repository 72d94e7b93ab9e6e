#pragma once
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include "redblue/kernels/implementations.hpp"
#include "redblue/language/arg.hpp"
#include "redblue/machines/ram/arena.hpp"

/// How the words of an operation get from slow memory and tiles to the implementation of its kernel, and which of them
/// pass through staging buffers. What a kernel reads is decided here, without touching a number: Ram does what is
/// decided, Sizing adds up the buffers. (Both ask `can_view` themselves of a block that is updated, and Ram of a
/// read_only tile.) `slow` answers `can_view`, `words16` and `is_int8` of caller_memory.hpp.
namespace redblue::machine {

/// How an argument gets to the implementation of a kernel.
struct Route {
  /// f16_rows, bf16_rows, bf16_pairs, bf16_columns: as 16-bit words; int8_rows: as int8 words, with their scales in the
  /// staging buffer of the argument; else as words of the compute type.
  Layout layout = Layout::row_major;
  bool copied = false;  ///< through the staging buffer of the argument; pairs are then made in buffer 0
};

/// Do the words of a block pass through staging buffer 0 on their way into a tile, or back? A packed tile is packed
/// from plain rows; other tiles are copied to and from slow memory as they lie. (Ram leaves the buffer alone where
/// implementations pack or unpack 16-bit words themselves, which depends on where the data lie.)
template <class Slow>
bool is_staged(const TileStack::Tile& tile, const Slow& slow, const Block& b) {
  return is_packed(tile.place.layout) && !slow.can_view(b);
}

/// Staging buffer 0 where rows of 16-bit words become pairs of them: an odd number of cache lines from row to row
/// spreads a column over all sets of a cache.
inline Shape shape_of_pairs(Shape rows, Layout layout) {
  constexpr index_t kLine = TileStack::kLineBytes / sizeof(float);
  Shape pairs{ceil_div(rows.rows, 2), rows.cols};
  if (layout == Layout::bf16_columns) std::swap(pairs.rows, pairs.cols);
  return {pairs.rows, (ceil_div(pairs.cols, kLine) | 1) * kLine};
}

/// The element type, of 16 bits or int8, that all arguments which may be such words have in common.
template <class Slow>
std::optional<DType> common_narrow(std::span<const Layout> wishes, std::span<const Arg> args,
                                   const kernel::ImplementationTraits& implementations, const Slow& slow) {
  std::optional<DType> common;
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (!may_be_narrow(wishes[i])) continue;
    std::optional<DType> type;
    if (args[i].kind == Arg::Kind::stream)
      type = slow.is_int8(args[i].block) ? std::optional(DType::int8) : slow.words16(args[i].block);
    else if (implementations.bf16)
      type = DType::bf16;  // the words of a tile came from bf16, so half of each is 0
    if (!type || (common && common != type)) return std::nullopt;
    common = type;
  }
  return common;
}

/// Calls visit(i, route) for the arguments from `from` on.
template <class K, class Slow, class Visit>
void for_routes(const K& k, std::span<const Arg> args, std::size_t from,
                const kernel::ImplementationTraits& implementations, const Slow& slow, const Visit& visit) {
  const std::span<const Layout> wishes = kernel::layouts_of(k);
  std::optional<DType> narrow;
  bool few_queries = true;
  if (!wishes.empty()) {
    narrow = common_narrow(wishes, args, implementations, slow);
    if (implementations.bf16 && narrow != DType::bf16) throw std::logic_error("bf16 products want rows of bf16");
    for (std::size_t i = 0; narrow && i < args.size(); ++i)
      if (wishes[i] == Layout::query_panels && args[i].shape().rows > implementations.few_rows) few_queries = false;
  }
  for (std::size_t i = from; i < args.size(); ++i) {
    const bool streamed = args[i].kind == Arg::Kind::stream;
    Route route;
    if (narrow && may_be_narrow(wishes[i])) route.layout = implementations.narrow(wishes[i], *narrow, few_queries);
    route.copied = route.layout != Layout::row_major ? !streamed : streamed && !slow.can_view(args[i].block);
    visit(i, route);
  }
}

}  // namespace redblue::machine
