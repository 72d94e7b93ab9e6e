#pragma once
#include <tuple>
#include <variant>

#include "redblue/schedule/column_split_forward.hpp"
#include "redblue/schedule/flash_forward.hpp"
#include "redblue/schedule/flash_pinned_forward.hpp"
#include "redblue/schedule/flash_tiled_forward.hpp"
#include "redblue/schedule/key_outer_forward.hpp"
#include "redblue/schedule/naive_forward.hpp"
#include "redblue/schedule/saha_ye_forward.hpp"
#include "redblue/schedule/score_tiles_forward.hpp"
#include "redblue/schedule/small_cache_forward.hpp"

/// The list of schedules. Adding one here makes it planned, counted, traced, run and tested everywhere.
namespace redblue::plan {

/// A schedule with its tile sizes.
template <class S>
struct Choice {
  using Schedule = S;
  typename S::Tiling tiling;
};

template <class... S>
struct ScheduleList {
  using AnyChoice = std::variant<Choice<S>...>;
  /// Calls f(Choice<S>{}) for each schedule S, in order.
  template <class F>
  static void for_each(const F& f) {
    (f(Choice<S>{}), ...);
  }
};

/// On a tie the earlier one wins: simpler first.
using ForwardSchedules =
    ScheduleList<schedule::FlashForward, schedule::FlashPinnedForward, schedule::ColumnSplitForward,
                 schedule::KeyOuterForward, schedule::SmallCacheForward, schedule::ScoreTilesForward,
                 schedule::FlashTiledForward, schedule::NaiveForward, schedule::SahaYeForward>;
using ForwardChoice = ForwardSchedules::AnyChoice;

}  // namespace redblue::plan
