#pragma once
#include "redblue/ranks/plan.hpp"
#include "report/json.hpp"

namespace redblue::cli {

/// The chosen layout and those beside it: words of a rank, bound, ratio, bytes, messages, and what it holds.
void print_layouts(const Problem& problem, const ranks::Wanted& wanted, const ranks::LayoutPlan& plan);
Json layouts_to_json(const Problem& problem, const ranks::Wanted& wanted, const ranks::LayoutPlan& plan);

/// {"layout":{..},"programs":[{"rank":0,"queries":[[0,16]],"keys":[[0,16]],"tiles":[{"array":"Q","rows":[[0,16]],
/// "heads":[0,4],"home":true},..],"steps":[{"verb":"send","peer":1,"cargo":"inputs","words":..,"pieces":[{"tile":0,
/// "rows":[[0,16]],"heads":[0,4]}]},{"verb":"attend","tiles":[0,1,2,3,4]},..]},..]}: what each rank does, in order.
/// Rows are positions in the whole, from the first to before the last.
Json steps_to_json(const ranks::World& world);

}  // namespace redblue::cli
