#pragma once
#include <bit>
#include <cstdint>
#include <new>

#include "redblue/machines/ram/routes.hpp"
#include "redblue/machines/ram/slow_side.hpp"

namespace redblue::machine {

/// The views that the implementation of a kernel gets. Those beyond `size` are not even cleared, for there is a list in
/// every call.
template <class T>
struct Views {
  explicit Views(std::size_t n) : size(n) {}
  union {
    std::array<View<T>, kMaxArgs> list;
  };
  std::size_t size;
  std::span<const View<T>> span() const { return {list.data(), size}; }
};

/// Rows of a tile as bf16, from which its words came, in this memory.
inline Rows16 narrowed(const View<float>& tile, const View<float>& memory) {
  auto* const words = reinterpret_cast<std::uint16_t*>(memory.data);
  for (index_t r = 0; r < tile.rows(); ++r)
    for (index_t t = 0; t < tile.cols(); ++t)
      words[r * tile.cols() + t] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(tile(r, t)) >> 16);
  return {words, tile.cols()};
}

/// Brings argument i to the implementation of a kernel by its route.
template <class T, class Slow>
View<T> operand(const Arg& arg, std::size_t i, Route route, kernel::Access access, Arena<T>& arena, const Slow& slow,
                const kernel::Implementations<T>& implementations) {
  if (arg.shape().words() == 0) return {nullptr, arg.shape(), 0};
  if constexpr (std::same_as<T, float>)
    if (route.layout != Layout::row_major) {
      const Shape shape = arg.shape();
      if (route.layout == Layout::int8_rows) {
        const Rows8 rows = slow.rows8(arg.block);
        View<T> words{reinterpret_cast<T*>(const_cast<std::int8_t*>(rows.data)), shape, rows.stride, 1, route.layout};
        words.other_form = arena.stage(i, {1, shape.rows}).data;
        slow.scales(arg.block, words.other_form);
        return words;
      }
      const Rows16 rows = route.copied ? narrowed(arena.view(arg), arena.stage(i, shape)) : slow.rows16(arg.block);
      if (is_paired(route.layout)) {
        const View<T> pairs = arena.stage(0, shape_of_pairs(shape, route.layout));
        implementations.pair_rows(rows.data, shape, rows.stride, pairs);
        return {pairs.data, shape, pairs.row_stride, 1, route.layout};
      }
      // Implementations that read 16-bit words know it by the layout, and write none.
      return {reinterpret_cast<T*>(const_cast<std::uint16_t*>(rows.data)), shape, rows.stride, 1, route.layout};
    }
  if (arg.kind == Arg::Kind::tile) {
    if (access != kernel::Access::read && is_only_read(arena.place_of(arg.depth).place.layout))
      throw std::logic_error("a kernel writes a tile that is only read");
    return arena.view(arg);
  }
  if (!route.copied) return slow.view(arg.block);
  const View<T> copy = arena.stage(i, arg.shape());
  slow.fetch(arg.block, copy.data, copy.row_stride);
  return copy;
}

/// The arguments from `from` on.
template <class T, class K, class Slow>
Views<T> operands(const K& k, std::span<const Arg> args, std::size_t from, Arena<T>& arena, const Slow& slow,
                  const kernel::Implementations<T>& implementations) {
  if constexpr (kernel::Kernel<K>) static_assert(kernel::arity<K> <= kMaxArgs);
  Views<T> views(args.size());
  for_routes(k, args, from, implementations, slow, [&](std::size_t i, Route route) {
    // Made in its place: a copy would wait for the words that were just written.
    new (&views.list[i]) View<T>(operand(args[i], i, route, kernel::access_of(k, i), arena, slow, implementations));
  });
  return views;
}

}  // namespace redblue::machine
