#pragma once
#include <tuple>
#include <variant>

#include "redblue/core/operation.hpp"
#include "redblue/schedule/algorithm_1_gradient.hpp"
#include "redblue/schedule/algorithm_6_gradient.hpp"
#include "redblue/schedule/algorithm_9_gradient.hpp"
#include "redblue/schedule/column_split_forward.hpp"
#include "redblue/schedule/flash_forward.hpp"
#include "redblue/schedule/flash_pinned_forward.hpp"
#include "redblue/schedule/flash_tiled_forward.hpp"
#include "redblue/schedule/fused_key_outer_backward.hpp"
#include "redblue/schedule/fused_query_outer_backward.hpp"
#include "redblue/schedule/fused_value_backward.hpp"
#include "redblue/schedule/grouped_key_outer_backward.hpp"
#include "redblue/schedule/key_outer_forward.hpp"
#include "redblue/schedule/key_outer_gradient.hpp"
#include "redblue/schedule/linear_backward.hpp"
#include "redblue/schedule/linear_forward.hpp"
#include "redblue/schedule/linear_products_backward.hpp"
#include "redblue/schedule/materialised_backward.hpp"
#include "redblue/schedule/naive_forward.hpp"
#include "redblue/schedule/on_the_fly_gradient.hpp"
#include "redblue/schedule/projected_backward.hpp"
#include "redblue/schedule/projected_forward.hpp"
#include "redblue/schedule/query_outer_gradient.hpp"
#include "redblue/schedule/saha_ye_forward.hpp"
#include "redblue/schedule/score_tiles_forward.hpp"
#include "redblue/schedule/shared_key_outer_gradient.hpp"
#include "redblue/schedule/shared_source_forward.hpp"
#include "redblue/schedule/shared_source_gradient.hpp"
#include "redblue/schedule/small_cache_forward.hpp"
#include "redblue/schedule/small_cache_gradient.hpp"
#include "redblue/schedule/spilled_backward.hpp"
#include "redblue/schedule/split_keys_forward.hpp"
#include "redblue/schedule/two_pass_backward.hpp"

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
