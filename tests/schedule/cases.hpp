#pragma once
#include <rapidcheck.h>

#include <ostream>
#include <vector>

#include "redblue/plan/schedules.hpp"

/// Random problems and tilings, small enough to run every word and ragged more often than not.
namespace redblue::test {

struct Case {
  schedule::ForwardShape shape;
  std::vector<int> sizes;  ///< raw tile sizes, 1..8; larger than a dimension often enough
};

inline std::ostream& operator<<(std::ostream& out, const Case& c) {
  out << "n_q " << c.shape.n_q << " n_k " << c.shape.n_k << " d " << c.shape.d << " d_v " << c.shape.d_v;
  if (c.shape.mask.causal) out << " causal offset " << c.shape.mask.offset << " group " << c.shape.mask.group;
  out << " tiles";
  for (int s : c.sizes) out << ' ' << s;
  return out;
}

inline Case any_case() {
  Case c;
  const int group = *rc::gen::inRange(1, 4);
  c.shape.mask = {*rc::gen::arbitrary<bool>(), *rc::gen::inRange(-6, 9), group};
  c.shape.n_q = *rc::gen::inRange(1, 15) * (c.shape.mask.causal ? group : 1);
  c.shape.n_k = *rc::gen::inRange(1, 15);
  c.shape.d = *rc::gen::inRange(1, 10);
  c.shape.d_v = *rc::gen::inRange(1, 10);
  c.shape.lse_required = *rc::gen::arbitrary<bool>();
  c.sizes = *rc::gen::container<std::vector<int>>(4, rc::gen::inRange(1, 9));
  if (!c.shape.mask.causal) c.shape.mask = {};
  return c;
}

/// Tile sizes of the case, cut to their dimensions.
template <class S>
typename S::Tiling tiling_of(const Case& c) {
  using namespace schedule;
  const ForwardShape& x = c.shape;
  const auto size = [&](std::size_t i, index_t n) { return std::min<index_t>(c.sizes[i], n); };
  if constexpr (std::same_as<S, FlashForward> || std::same_as<S, FlashTiledForward>) {
    return {size(0, x.n_q), size(1, x.n_k)};
  } else if constexpr (std::same_as<S, FlashPinnedForward>) {
    const index_t Bc = size(1, x.n_k), steps = c.sizes[2] % 3;
    return {size(0, x.n_q), c.sizes[3] % 4 == 0 ? x.n_k : std::min(steps * Bc, x.n_k), Bc};
  } else if constexpr (std::same_as<S, ColumnSplitForward>) {
    return {size(0, x.n_q), size(1, x.n_k), size(2, x.d_v)};
  } else if constexpr (std::same_as<S, KeyOuterForward>) {
    return {size(0, x.n_k), size(1, x.n_q)};
  } else if constexpr (std::same_as<S, SmallCacheForward>) {
    const bool panel = c.sizes[0] % 2 == 0;
    return {panel, size(0, x.n_q), size(1, x.n_k), size(2, x.n_q), size(3, x.d_v)};
  } else if constexpr (std::same_as<S, ScoreTilesForward>) {
    return {size(0, x.n_q), size(1, x.n_k)};
  } else if constexpr (std::same_as<S, NaiveForward>) {
    return {size(0, x.n_q), size(1, x.n_k), size(2, x.n_q), size(3, x.d_v), 1 + c.sizes[0] % 2};
  } else {
    static_assert(std::same_as<S, SahaYeForward>);
    return {c.sizes[0]};
  }
}

/// f(Choice<S>) for every schedule that can solve the case.
template <class F>
void for_each_schedule(const Case& c, const F& f) {
  plan::ForwardSchedules::for_each([&]<class S>(plan::Choice<S>) {
    if (!c.shape.mask.causal || S::masks) f(plan::Choice<S>{tiling_of<S>(c)});
  });
}

}  // namespace redblue::test
