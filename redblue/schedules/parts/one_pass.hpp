#pragma once
#include <optional>

#include "redblue/schedules/parts/limits.hpp"

/// Schedules whose keys, values and queries pass once: their tiles change no word.
namespace redblue::schedule {

inline Io one_pass_io(const Sizes& x) {
  return Io()
      .read(SlowArray::K, Words(x.n_k) * x.d)
      .read(SlowArray::V, Words(x.n_k) * x.d_v)
      .read(SlowArray::Q, Words(x.n_q) * x.d)
      .write(SlowArray::O, Words(x.n_q) * x.d_v);
}

/// bc and br of a tiling of schedule S, doubled in turn while there is room, up to these many keys and queries.
template <class S>
typename S::Tiling doubled_in_turn(typename S::Tiling t, const Sizes& x, const Limits& limits, index_t keys = kEnough,
                                   index_t queries = kEnough) {
  const auto fits_with = [&](index_t S::Tiling::* tile) {
    return [&, tile](index_t size) {
      auto u = t;
      u.*tile = size;
      return schedule::fits<S>(x, u, limits);
    };
  };
  for (index_t enough = 2; enough <= std::max(keys, queries); enough *= 2) {
    t.bc = doubled(t.bc, x.n_k, fits_with(&S::Tiling::bc), std::min(enough, keys));
    t.br = doubled(t.br, x.n_q, fits_with(&S::Tiling::br), std::min(enough, queries));
  }
  return t;
}

/// bc and br doubled in turn from the smallest tiling, if that fits.
template <class S>
std::optional<typename S::Tiling> doubled_in_turn(const Sizes& x, const Limits& limits, index_t keys = kEnough,
                                                  index_t queries = kEnough) {
  const auto t = smallest_if_it_fits<S>(x, limits);
  return t ? std::optional(doubled_in_turn<S>(*t, x, limits, keys, queries)) : t;
}

}  // namespace redblue::schedule
