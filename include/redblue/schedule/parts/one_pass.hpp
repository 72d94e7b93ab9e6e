#pragma once
#include <optional>

#include "redblue/schedule/parts/limits.hpp"

/// Schedules whose keys, values and queries pass once: their tiles change no word.
namespace redblue::schedule {

inline Io one_pass_io(const Sizes& x) {
  return Io()
      .read(SlowArray::K, Words(x.n_k) * x.d)
      .read(SlowArray::V, Words(x.n_k) * x.d_v)
      .read(SlowArray::Q, Words(x.n_q) * x.d)
      .write(SlowArray::O, Words(x.n_q) * x.d_v);
}

/// bc and br of a schedule S, doubled in turn while there is room, up to these many keys and queries.
template <class S>
std::optional<typename S::Tiling> doubled_in_turn(const Sizes& x, const Limits& limits, index_t keys = kEnough,
                                                  index_t queries = kEnough) {
  using Tiling = typename S::Tiling;
  const auto fits = [&](const Tiling& u) { return schedule::fits<S>(x, u, limits); };
  Tiling t = S::smallest(x, limits.multiple);
  if (!fits(t)) return std::nullopt;
  for (index_t enough = 2; enough <= std::max(keys, queries); enough *= 2) {
    t.bc = doubled(t.bc, x.n_k, [&](index_t bc) { return fits({t.br, bc}); }, std::min(enough, keys));
    t.br = doubled(t.br, x.n_q, [&](index_t br) { return fits({br, t.bc}); }, std::min(enough, queries));
  }
  return t;
}

}  // namespace redblue::schedule
