#pragma once
#include <tuple>
#include <variant>

#include "redblue/core/operation.hpp"
#include "redblue/schedule/backward/fused_key_outer.hpp"
#include "redblue/schedule/backward/fused_query_outer.hpp"
#include "redblue/schedule/backward/fused_value.hpp"
#include "redblue/schedule/backward/grouped_key_outer.hpp"
#include "redblue/schedule/backward/linear.hpp"
#include "redblue/schedule/backward/linear_products.hpp"
#include "redblue/schedule/backward/materialised.hpp"
#include "redblue/schedule/backward/spilled.hpp"
#include "redblue/schedule/backward/two_pass.hpp"
#include "redblue/schedule/forward/column_split.hpp"
#include "redblue/schedule/forward/flash.hpp"
#include "redblue/schedule/forward/flash_pinned.hpp"
#include "redblue/schedule/forward/flash_tiled.hpp"
#include "redblue/schedule/forward/key_outer.hpp"
#include "redblue/schedule/forward/linear.hpp"
#include "redblue/schedule/forward/naive.hpp"
#include "redblue/schedule/forward/saha_ye.hpp"
#include "redblue/schedule/forward/score_tiles.hpp"
#include "redblue/schedule/forward/small_cache.hpp"
#include "redblue/schedule/forward/split_keys.hpp"
#include "redblue/schedule/gradient/algorithm_1.hpp"
#include "redblue/schedule/gradient/algorithm_6.hpp"
#include "redblue/schedule/gradient/algorithm_9.hpp"
#include "redblue/schedule/gradient/key_outer.hpp"
#include "redblue/schedule/gradient/on_the_fly.hpp"
#include "redblue/schedule/gradient/query_outer.hpp"
#include "redblue/schedule/gradient/shared_key_outer.hpp"
#include "redblue/schedule/gradient/shared_source.hpp"
#include "redblue/schedule/gradient/small_cache.hpp"
#include "redblue/schedule/projected/backward.hpp"
#include "redblue/schedule/projected/forward.hpp"
#include "redblue/schedule/projected/shared_source.hpp"

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

/// A list with more at its end.
template <class List, class... More>
struct With;
template <class... S, class... More>
struct With<ScheduleList<S...>, More...> {
  using List = ScheduleList<S..., More...>;
};

/// On a tie the earlier one wins: simpler first.
using ForwardSchedules =
    ScheduleList<schedule::FlashForward, schedule::FlashPinnedForward, schedule::ColumnSplitForward,
                 schedule::KeyOuterForward, schedule::SmallCacheForward, schedule::ScoreTilesForward,
                 schedule::FlashTiledForward, schedule::NaiveForward, schedule::SahaYeForward,
                 schedule::SplitKeysForward, schedule::LinearForward, schedule::LinearProductsForward>;
using AttentionBackwardSchedules =
    ScheduleList<schedule::FusedQueryOuterBackward, schedule::FusedKeyOuterBackward, schedule::TwoPassBackward,
                 schedule::SpilledBackward, schedule::FusedValueBackward, schedule::MaterialisedBackward>;
/// With the one for many workers, and those that reassociate: for the identity as score function.
using BackwardSchedules = With<AttentionBackwardSchedules, schedule::GroupedKeyOuterBackward, schedule::LinearBackward,
                               schedule::LinearTwoStateBackward, schedule::LinearProductsBackward>::List;

using ForwardXSchedules =
    ScheduleList<schedule::Projected<schedule::FlashForward>, schedule::Projected<schedule::FlashPinnedForward>,
                 schedule::Projected<schedule::ColumnSplitForward>, schedule::Projected<schedule::KeyOuterForward>,
                 schedule::Projected<schedule::SmallCacheForward>, schedule::Projected<schedule::ScoreTilesForward>,
                 schedule::Projected<schedule::NaiveForward>, schedule::SharedSourceForward>;

using GradientXSchedules = ScheduleList<
    schedule::QueryOuterGradient<schedule::RowsGo::out>, schedule::QueryOuterGradient<schedule::RowsGo::into_slow_g>,
    schedule::QueryOuterGradient<schedule::RowsGo::into_resident_g>, schedule::OnTheFlyGradient,
    schedule::KeyOuterGradient<schedule::Values::formed>, schedule::KeyOuterGradient<schedule::Values::stored>,
    schedule::SmallCacheGradient, schedule::SharedSourceGradient, schedule::SharedKeyOuterGradient,
    schedule::Algorithm1Gradient, schedule::Algorithm6Gradient, schedule::Algorithm9Gradient>;

/// Every backward schedule between the products around it.
template <template <class> class Around, class List>
struct Wrapped;
template <template <class> class Around, class... S>
struct Wrapped<Around, ScheduleList<S...>> {
  using List = ScheduleList<Around<S>...>;
};
using BackwardXSchedules = Wrapped<schedule::ProjectedBackward, AttentionBackwardSchedules>::List;
using BackwardWSchedules = Wrapped<schedule::WeightedBackward, AttentionBackwardSchedules>::List;

/// Any schedule of any operation, with its tile sizes.
struct AnyChoice {
  std::variant<ForwardSchedules::AnyChoice, BackwardSchedules::AnyChoice, ForwardXSchedules::AnyChoice,
               GradientXSchedules::AnyChoice, BackwardXSchedules::AnyChoice, BackwardWSchedules::AnyChoice>
      choice;
};

/// f(ScheduleList<...>{}) for the list of an operation.
template <class F>
decltype(auto) with_schedules(Operation op, const F& f) {
  switch (op) {
    case Operation::backward:
      return f(BackwardSchedules{});
    case Operation::forward_x:
      return f(ForwardXSchedules{});
    case Operation::gradient_x:
      return f(GradientXSchedules{});
    case Operation::backward_x:
      return f(BackwardXSchedules{});
    case Operation::backward_w:
      return f(BackwardWSchedules{});
    default:
      return f(ForwardSchedules{});
  }
}

}  // namespace redblue::plan
