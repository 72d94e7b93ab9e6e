#include "report/json.hpp"

#include <fmt/core.h>

#include <type_traits>

#include "redblue/planner/options.hpp"
#include "redblue/planner/widths.hpp"
#include "redblue/problem/options.hpp"
#include "report/approximations.hpp"

namespace redblue::cli {

namespace {

/// The value of an option.
template <class T>
Json value_of(const T& x) {
  if constexpr (Named<T>)
    return std::string(name_of(x));
  else if constexpr (requires { x.has_value(); })
    return x ? Json(*x) : Json(nullptr);
  else if constexpr (std::is_same_v<T, Words>)
    return to_json(x);
  else if constexpr (std::is_same_v<T, schedule::Multiples>)
    return {{"q", x.query}, {"k", x.key}, {"f", x.feature}};
  else
    return x;
}

/// Appends the options of a table that say anything about s; before(NAME) comes before each.
template <class Table, class S, class Before>
void add_options(const Table& table, const S& s, Json& j, const Before& before) {
  option::for_each(table, [&](const auto& o) {
    before(o.name);
    if (o.matters(s)) j[std::string(o.name)] = value_of(o.of(s));
  });
}

}  // namespace

Json to_json(const Problem& p) {
  Json j;
  add_options(problem_options(), p, j, [&](std::string_view name) {
    if (name == "sources") add_approximation(j, p);
    if (name == "order")
      for (std::size_t k = 0; k < p.patterns.size(); ++k)
        j["patterns"].push_back({{"pairs", to_json(count_of(p.patterns[k]))}});
  });
  j["kv_heads"] = p.kv_heads.value_or(p.heads);
  j["scale"] = p.scale_or_default();
  if (j.contains("causal_offset") && !p.causal_offset)
    j["causal_offset"] = p.several() ? Json("bottom-right of each sequence") : Json(p.n_k - p.n_q);
  return j;
}

Json to_json(const bound::Bound& b) {
  return {
      {"words", to_json(b.words)},       {"theorem", std::string(b.name)},        {"class", std::string(b.algorithms)},
      {"status", std::string(b.status)}, {"condition", std::string(b.condition)}, {"holds", b.holds}};
}

Json to_json(const std::vector<schedule::TileSize>& tiling) {
  Json j = Json::object();
  for (const schedule::TileSize& k : tiling) j[std::string(k.name)] = k.value;
  return j;
}

Json own_tilings_to_json(const std::vector<schedule::TileSize>& tiling) {
  Json list = Json::array();
  for (const auto& [core, own] : schedule::own_tilings(tiling)) {
    Json j{{"rows", core.n_q}, {"keys", core.n_k}};
    if (core.lo != -Mask::kFar) j["lo"] = core.lo;
    if (core.hi != Mask::kFar) j["hi"] = core.hi;
    if (core.prefix > 0) j["prefix"] = core.prefix;
    j["tiling"] = to_json(own);
    list.push_back(std::move(j));
  }
  return list;
}

Json counts_to_json(const Io& io, Words peak, Words flops) {
  Json arrays = Json::object();
  for (std::size_t a = 0; a < kSlowArrays; ++a)
    if (io.reads[a] > 0 || io.writes[a] > 0)
      arrays[std::string(kSlowArrayNames[a])] = {{"reads", to_json(io.reads[a])}, {"writes", to_json(io.writes[a])}};
  return {{"reads", to_json(io.total_reads())},
          {"writes", to_json(io.total_writes())},
          {"io", to_json(io.total())},
          {"peak", to_json(peak)},
          {"flops", to_json(flops)},
          {"per_array", arrays}};
}

Json work_to_json(const plan::Row& row) {
  Json j{{"flops", to_json(row.flops)}, {"relative", row.work}};
  if (const int products = row.algorithm->traits.products; products > 0) j["products"] = products;
  return j;
}

Json to_json(const model::Time& t) {
  return {{"compute_s", t.compute_s},
          {"exp_s", t.exp_s},
          {"pass_s", t.pass_s},
          {"transfer_s", t.transfer_s},
          {"total_s", t.total_s}};
}

Json to_json(const plan::Row& row) {
  Json j{{"schedule", std::string(row.schedule)},
         {"tiling", to_json(row.tiling)},
         {"own_tilings", own_tilings_to_json(row.tiling)},
         {"reads", to_json(row.io.total_reads())},
         {"writes", to_json(row.io.total_writes())},
         {"io", to_json(row.io.total())},
         {"footprint", to_json(row.footprint)},
         {"prefetch", to_json(row.prefetch)},
         {"index_words", to_json(row.index.reads)},
         {"index_footprint", to_json(row.index.resident)},
         {"workspace", to_json(row.workspace)},
         {"flops", to_json(row.flops)},
         {"ratio", row.ratio ? Json(*row.ratio) : Json(nullptr)},
         {"work", work_to_json(row)},
         {"stable", row.algorithm->traits.stable},
         {"fits", row.fits},
         {"cost", row.cost.to_double() / plan::kCostUnit}};
  if (!row.algorithm->label.empty()) j["label"] = std::string(row.algorithm->label);
  if (row.weight_error > 0) j["weight_error"] = row.weight_error;
  if (row.bytes) j["bytes"] = to_json(*row.bytes);
  if (row.footprint_bytes) j["footprint_bytes"] = to_json(*row.footprint_bytes);
  if (row.prefetch_bytes) j["prefetch_bytes"] = to_json(*row.prefetch_bytes);
  if (row.time) j["time"] = to_json(*row.time);
  return j;
}

namespace {

void add_widths(const plan::Options& o, Json& j) {
  Json widths = Json::object();
  for (std::size_t a = 0; a < kSlowArrays; ++a)
    if (o.width[a] > 0) widths[std::string(kSlowArrayNames[a])] = o.width[a];
  if (!widths.empty()) j["width"] = widths;
  Json unfinished = Json::object();
  for (std::size_t a = 0; a < kSlowArrays; ++a)
    if (o.unfinished[a] > o.width[a]) unfinished[std::string(kSlowArrayNames[a])] = o.unfinished[a];
  if (!unfinished.empty()) j["unfinished_width"] = unfinished;
  if (!o.memory) return;
  Json resident = Json::object();
  for (std::size_t a = 0; a < kSlowArrays; ++a)
    if (o.width[a] > 0) resident[std::string(kSlowArrayNames[a])] = o.memory->fast.width[a];
  j["memory"] = {{"bytes", to_json(o.memory->bytes)},
                 {"width", resident},
                 {"row_multiple", o.memory->fast.row_multiple},
                 {"row_extra", o.memory->fast.row_extra}};
}

}  // namespace

Json to_json(const plan::Options& o) {
  Json j;
  add_options(plan::plan_options(), o, j, [&](std::string_view name) {
    if (name == "reorder") add_widths(o, j);
  });
  if (o.cap) j["max_workspace"] = to_json(o.cap->most);
  return j;
}

Json to_json(const plan::Plan& plan) {
  Json rows = Json::array(), refused = Json::array(), bounds = Json::array();
  for (const plan::Row& r : plan.rows) {
    Json row = to_json(r);
    row["may_be_chosen"] = plan.may_choose(r);
    rows.push_back(row);
  }
  for (const plan::Refusal& r : plan.refused)
    refused.push_back({{"schedule", std::string(r.schedule)},
                       {"why", r.why},
                       {"smallest_M", r.smallest_M ? Json(to_json(*r.smallest_M)) : Json(nullptr)},
                       {"smallest_max_workspace", r.smallest_cap ? Json(to_json(*r.smallest_cap)) : Json(nullptr)}});
  for (const bound::Bound& b : plan.bounds) bounds.push_back(to_json(b));
  Json j{{"schema", "redblue.plan/1"},
         {"problem", to_json(plan.problem)},
         {"M", to_json(plan.options.M)},
         {"objective", plan.row().time                       ? "time"
                       : plan::minimises_bytes(plan.options) ? "bytes"
                                                             : "words"},
         {"options", to_json(plan.options)},
         {"bound", to_json(plan.bound)},
         {"bounds", bounds},
         {"plans", rows},
         {"refused", refused},
         {"chosen", plan.chosen},
         {"reason", plan.reason}};
  if (plan::minimises_bytes(plan.options)) j["bound_bytes"] = to_json(plan::least_bytes(plan));
  if (plan.forward) j["forward"] = to_json(*plan.forward);
  if (plan.dense) j["dense"] = to_json(*plan.dense);
  return j;
}

void print(const Json& j) { fmt::print("{}\n", j.dump(2, ' ', false, Json::error_handler_t::replace)); }

}  // namespace redblue::cli
