#include "report/ranks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "redblue/problem/text.hpp"

namespace redblue::cli {

namespace {

using ranks::LayoutRow;

Json layout_to_json(const ranks::Layout& l) {
  Json j{{"head_groups", l.head_groups},
         {"grid_rows", l.grid_rows},
         {"grid_cols", l.grid_cols},
         {"ranks", l.ranks()},
         {"transfer", std::string(name_of(l.transfer))},
         {"ownership", std::string(name_of(l.ownership))}};
  if (l.block > 0) j["block_rows"] = l.block;
  if (l.reproducible > 0) j["reproducible"] = l.reproducible;
  if (l.keeps_heads) j["keeps_heads"] = true;
  return j;
}

Json layout_row_to_json(const LayoutRow& row) {
  const ranks::LayoutCost& c = row.cost;
  Json j{{"name", row.name}};
  j.update(layout_to_json(c.layout));
  j["words"] = to_json(c.words);
  j["bound"] = to_json(row.bound);
  j["ratio"] = row.ratio ? Json(*row.ratio) : Json(nullptr);
  j["bytes"] = to_json(c.bytes);
  j["messages"] = to_json(c.messages);
  j["all_words"] = to_json(c.all_words);
  j["pairs"] = to_json(c.pairs);
  j["balance"] = c.balance;
  j["held"] = c.held ? Json(to_json(*c.held)) : Json(nullptr);
  if (c.seconds) j["modelled_seconds"] = *c.seconds;
  if (c.seconds) j["simulated_seconds"] = c.simulated ? Json(*c.simulated) : Json(nullptr);
  if (row.local)
    j["local"] = {{"rank", row.local->rank},
                  {"pairs", to_json(row.local->pairs)},
                  {"io", to_json(row.local->io)},
                  {"bound", to_json(row.local->bound)},
                  {"ratio", row.local->ratio ? Json(*row.local->ratio) : Json(nullptr)},
                  {"schedule", std::string(row.local->schedule)},
                  {"tiling", to_json(row.local->tiling)}};
  return j;
}

Json rows_to_json(const ranks::Rows& rows) {
  Json j = Json::array();
  for (const Range& r : rows.ranges()) j.push_back({r.begin, r.end});
  return j;
}

Json step_to_json(const ranks::World& world, const ranks::Program& program, const ranks::Step& s) {
  Json j{{"verb", std::string(name_of(s.verb))}};
  if (s.verb == ranks::Verb::send || s.verb == ranks::Verb::receive) {
    j["peer"] = s.peer;
    j["cargo"] = std::string(name_of(s.cargo));
    j["words"] = to_json(words_of(world, program, s.pieces));
  }
  if (!s.tiles.empty()) j["tiles"] = s.tiles;
  if (s.verb == ranks::Verb::attend || s.verb == ranks::Verb::gradient) {
    j["queries"] = rows_to_json(s.queries);
    j["keys"] = rows_to_json(s.keys);
  }
  for (const ranks::Piece& p : s.pieces) {
    j["pieces"].push_back({{"tile", p.tile}, {"rows", rows_to_json(p.rows)}, {"heads", {p.heads.begin, p.heads.end}}});
    if (!p.cols.empty()) j["pieces"].back()["columns"] = rows_to_json(p.cols);
  }
  return j;
}

/// What the rank of the most pairs moves between its own fast and slow memory.
void print_local_work(const ranks::Wanted& wanted, const ranks::LayoutPlan& plan, std::size_t name) {
  fmt::print(
      "\nfast memory of M = {} words: what the rank with the most pairs moves between it and its slow memory\n\n",
      wanted.M.str());
  fmt::print("  {:<{}} {:>16} {:>6} {:>18} {:>18} {:>18} {:>7}  {}\n", "layout", name, "groups x grid", "rank", "pairs",
             "I/O words", "bound", "ratio", "its largest part");
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const LayoutRow& r = plan.rows[i];
    if (!r.local) continue;
    const ranks::LocalWork& l = *r.local;
    fmt::print("{} {:<{}} {:>16} {:>6} {:>18} {:>18} {:>18} {:>7}  {} {}\n", i == 0 ? '*' : ' ', r.name, name,
               shape_text(r.cost.layout), l.rank, l.pairs.str(), l.io.str(), l.bound.words.str(),
               l.ratio ? fmt::format("{:.3f}", *l.ratio) : "-", l.schedule, plan::text_of(l.tiling));
  }
  if (wanted.ranks > ranks::kMostWithLocal) fmt::print("  (of layouts of up to {} ranks)\n", ranks::kMostWithLocal);
}

}  // namespace

void print_layouts(const Problem& p, const ranks::Wanted& wanted, const ranks::LayoutPlan& plan) {
  fmt::print("{} over {} rank{}: batch {}, heads {} ({} key-value), n_q {}, n_k {}, d {}, d_v {}{}\n", name_of(p.op),
             wanted.ranks, wanted.ranks == 1 ? "" : "s", p.batch, p.heads, p.kv_heads.value_or(p.heads), p.n_q, p.n_k,
             p.d, p.d_v, mask_text(p));
  fmt::print("words of a rank: inputs received and partial results sent, of the rank with the most\n\n");
  std::size_t name = std::string_view("layout").size();
  for (const LayoutRow& r : plan.rows) name = std::max(name, r.name.size());
  fmt::print("  {:<{}} {:>16} {:<9} {:<12} {:>16} {:>16} {:>7} {:>16} {:>9} {:>16} {:>8}{}\n", "layout", name,
             "groups x grid", "transfer", "rows", "words of a rank", "bound", "ratio", "bytes", "messages",
             "words held", "balance",
             wanted.network ? fmt::format(" {:>12} {:>12}", "modelled ms", "simulated ms") : "");
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const LayoutRow& r = plan.rows[i];
    const ranks::LayoutCost& c = r.cost;
    fmt::print("{} {:<{}} {:>16} {:<9} {:<12} {:>16} {:>16} {:>7} {:>16} {:>9} {:>16} {:>8.3f}{}\n", i == 0 ? '*' : ' ',
               r.name, name, shape_text(c.layout), name_of(c.layout.transfer), name_of(c.layout.ownership),
               c.words.str(), r.bound.words.str(), r.ratio ? fmt::format("{:.3f}", *r.ratio) : "-", c.bytes.str(),
               c.messages.str(), c.held ? c.held->str() : "-", c.balance,
               c.seconds ? fmt::format(" {:>12.4g} {:>12}", 1e3 * *c.seconds,
                                       c.simulated ? fmt::format("{:.4g}", 1e3 * *c.simulated) : "-")
                         : "");
  }
  for (const ranks::LayoutRefusal& r : plan.refused) fmt::print("- {:<{}} {}\n", r.name, name, r.why);
  if (wanted.M > 0) print_local_work(wanted, plan, name);
  fmt::print("\n{}\n", plan.reason);
}

Json layouts_to_json(const Problem& p, const ranks::Wanted& wanted, const ranks::LayoutPlan& plan) {
  Json rows = Json::array();
  for (const LayoutRow& r : plan.rows) rows.push_back(layout_row_to_json(r));
  Json j{{"schema", "redblue.ranks.plan/1"},
         {"problem", to_json(p)},
         {"ranks", wanted.ranks},
         {"objective", wanted.least_time ? "time" : "words"},
         {"bytes_of_word", {{"inputs", wanted.widths.inputs}, {"partials", wanted.widths.partials}}}};
  if (wanted.network)
    j["network"] = {{"latency", wanted.network->latency},
                    {"bandwidth", wanted.network->bandwidth},
                    {"overlap", wanted.network->overlap},
                    {"flops", wanted.network->arithmetic > 0 ? Json(wanted.network->arithmetic) : Json(nullptr)}};
  if (wanted.M > 0) j["M"] = to_json(wanted.M);
  j["layouts"] = rows;
  j["refused"] = Json::array();
  for (const ranks::LayoutRefusal& r : plan.refused) j["refused"].push_back({{"name", r.name}, {"why", r.why}});
  j["chosen"] = 0;
  j["reason"] = plan.reason;
  return j;
}

Json steps_to_json(const ranks::World& world) {
  Json programs = Json::array();
  for (int rank = 0; rank < world.ranks(); ++rank) {
    const ranks::Program program = program_of(world, rank);
    Json tiles = Json::array(), steps = Json::array();
    for (const ranks::Tile& t : program.tiles)
      tiles.push_back({{"array", std::string(name_of(t.array))},
                       {"rows", rows_to_json(t.rows)},
                       {"heads", {t.heads.begin, t.heads.end}},
                       {"home", t.home}});
    for (const ranks::Step& s : program.steps) steps.push_back(step_to_json(world, program, s));
    programs.push_back({{"rank", rank},
                        {"queries", rows_to_json(world.queries_of(rank))},
                        {"keys", rows_to_json(world.keys_of(rank))},
                        {"tiles", tiles},
                        {"steps", steps}});
  }
  return {{"schema", "redblue.ranks.steps/1"},
          {"problem", to_json(world.problem())},
          {"layout", layout_to_json(world.layout())},
          {"programs", programs}};
}

}  // namespace redblue::cli
