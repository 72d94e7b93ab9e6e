#include "redblue/ranks/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "redblue/bounds/bound.hpp"
#include "redblue/language/error.hpp"
#include "redblue/masks/visible.hpp"
#include "redblue/ranks/bounds.hpp"
#include "redblue/ranks/candidates.hpp"
#include "redblue/ranks/simulate.hpp"
#include "redblue/ranks/widths.hpp"

namespace redblue::ranks {
namespace {

/// Beyond these ranks layouts that leave some unused are looked at only where every query sees every key.
constexpr int kMostRanksWithFewer = 256;

class LayoutSearch {
 public:
  LayoutSearch(const Problem& problem, const Wanted& wanted) : p_(problem), wanted_(wanted) {
    const Sight sight(problem);
    sees_all_ = sight.sees_all();
    all_pairs_ = sight.pairs(Rows::of({0, problem.n_q}), Rows::of({0, problem.n_k})) * problem.heads * problem.batch;
    costs_work_ = wanted.least_time && wanted.network->arithmetic > 0;
    list_ = candidates(problem, wanted, false);
    if (!wanted.grid && (sees_all_ || wanted.ranks <= kMostRanksWithFewer)) add_with_fewer();
    std::ranges::stable_sort(list_, {}, [&](const Layout& l) { return least(l); });
  }

  const LayoutCost& cost(const Layout& l) {
    const auto key = std::tuple(l.head_groups, l.grid_rows, l.grid_cols, l.transfer, l.ownership, l.reproducible);
    const auto found = costs_.find(key);
    if (found != costs_.end()) return found->second;
    return costs_.emplace(key, cost_of(World(p_, l), wanted_.widths, wanted_.network)).first->second;
  }
  /// The best of the layouts of which `kind` holds; null: there is none.
  template <class Kind>
  const LayoutCost* best(const Kind& kind) {
    const LayoutCost* best = nullptr;
    for (const Layout& l : list_) {
      if (!kind(l)) continue;
      // Roundings of the mean are far below one part in 10^9.
      if (best != nullptr && balanced(*best) && least(l) > value(*best) * (1 + 1e-9)) break;
      take(cost(l), best);
    }
    return best;
  }
  /// The best order of rows for a layout.
  const LayoutCost* best_order(Layout l) {
    const LayoutCost* best = nullptr;
    for (const Ownership o : ownerships(p_, wanted_)) {
      l.ownership = o;
      l.block = o == Ownership::block_cyclic ? wanted_.block : 0;
      take(cost(l), best);
    }
    return best;
  }
  /// The layouts that people use with all ranks.
  Layout line(Transfer transfer, Side side) const {
    return {1, side == Side::keys ? wanted_.ranks : 1, side == Side::keys ? 1 : wanted_.ranks, transfer};
  }
  Layout heads() const { return {.head_groups = wanted_.ranks, .keeps_heads = wanted_.keeps_heads}; }
  bool has_heads() const { return wanted_.ranks > 1 && groups_divide(p_, wanted_.ranks); }
  bool better(const LayoutCost& a, const LayoutCost& b) { return rank(a) < rank(b); }
  std::size_t tried() const { return costs_.size(); }

 private:
  /// Layouts that leave some ranks unused. Without a price of work those of few ranks would move the fewest words.
  void add_with_fewer() {
    for (const Layout& l : candidates(p_, wanted_, true))
      if (l.ranks() < wanted_.ranks && (costs_work_ || Words(11) * l.ranks() >= Words(10) * wanted_.ranks))
        list_.push_back(l);
    Wanted fewer = wanted_;
    for (fewer.ranks = 1; costs_work_ && fewer.ranks <= wanted_.ranks / 2; fewer.ranks *= 2)
      for (const Layout& l : candidates(p_, fewer, false)) list_.push_back(l);
  }
  double least(const Layout& l) const {
    return least_value(p_, wanted_, l, sees_all_, all_pairs_) * (wanted_.least_time ? 1 : share(l));
  }
  double value(const LayoutCost& c) const {
    return wanted_.least_time ? *c.seconds : c.words.to_double() * share(c.layout);
  }
  /// A layout that leaves ranks unused has to save a tenth of the words, and the share of the unused ranks beside.
  double share(const Layout& l) const {
    return l.ranks() == wanted_.ranks || wanted_.grid ? 1 : 1.1 * wanted_.ranks / l.ranks();
  }
  /// Does no rank work on many more pairs than it need?
  bool balanced(const LayoutCost& c) {
    if (costs_work_ || wanted_.grid) return true;
    if (!fewest_pairs_) {
      fewest_pairs_ = c.pairs;
      std::vector<Layout> common{line(Transfer::exchange, Side::keys), line(Transfer::exchange, Side::queries)};
      if (has_heads()) common.push_back(heads());
      for (int r = 1; r <= wanted_.ranks / r; ++r)
        if (wanted_.ranks % r == 0 && wanted_.ranks / r <= 2 * r)
          common.insert(common.end(), {{1, r, wanted_.ranks / r}, {1, wanted_.ranks / r, r}});
      if (wanted_.reproducible > 0) common = {{1, wanted_.ranks, 1, Transfer::gather}};
      for (Layout l : common)
        for (const Ownership o : ownerships(p_, wanted_)) {
          l.ownership = o;
          l.block = o == Ownership::block_cyclic ? wanted_.block : 0;
          l.reproducible = wanted_.reproducible;
          fewest_pairs_ = std::min(*fewest_pairs_, cost(l).pairs);
        }
    }
    return c.pairs * 10 <= *fewest_pairs_ * 11;
  }
  std::tuple<bool, double, Words, Words, Words, int> rank(const LayoutCost& c) {
    return {!balanced(c), value(c), c.words, c.pairs, c.messages, -c.layout.ranks()};
  }
  void take(const LayoutCost& c, const LayoutCost*& best) {
    if (best == nullptr || better(c, *best)) best = &c;
  }

  const Problem& p_;
  const Wanted& wanted_;
  bool sees_all_ = false, costs_work_ = false;
  Words all_pairs_;
  std::vector<Layout> list_;
  std::optional<Words> fewest_pairs_;
  std::map<std::tuple<int, int, int, Transfer, Ownership, index_t>, LayoutCost> costs_;
};

LayoutRow layout_row(const Problem& p, const Wanted& wanted, const LayoutCost& cost) {
  LayoutRow row{common_name(cost.layout), cost, {}, std::nullopt};
  // The bounds are of rows that one rank has at the start; those of kept heads are on two.
  const bool twice = cost.layout.keeps_heads && p.op == Operation::backward;
  const Homes homes{cost.layout.ranks(), cost.home_queries, cost.home_keys};
  row.bound = best_over_ranks(twice ? std::vector<bound::Bound>{} : bounds_over_ranks(p, homes));
  if (row.bound.words > 0) row.ratio = cost.words.to_double() / row.bound.words.to_double();
  const bool local = wanted.M > 0 && cost.layout.ranks() <= kMostWithLocal, walked = cost.layout.ranks() <= kMostWalked;
  if (!local && !walked) return row;
  const World world(p, cost.layout);
  if (local) row.local = local_work(world, wanted.M);
  if (!walked) return row;
  row.cost.held = most_words_held(world);
  if (!wanted.network) return row;
  double slowest = 0;
  for (const Simulated& s : simulate(world, wanted.widths, *wanted.network)) slowest = std::max(slowest, s.total);
  row.cost.simulated = slowest;
  return row;
}

/// Why a layout moves few words.
std::string why_few_words(const Problem& p, const Layout& l) {
  if (l.ranks() == 1) return "one rank has all rows";
  if (l.head_groups > 1 && l.ranks() == l.head_groups)
    return fmt::format("each rank has all rows of {} of {} query heads, so that only heads change ranks",
                       p.heads / l.head_groups, p.heads);
  if (l.head_groups > 1)
    return fmt::format("heads go to {} groups of ranks, so that a grid of {} x {} gathers rows of {} of {} query heads",
                       l.head_groups, l.grid_rows, l.grid_cols, p.heads / l.head_groups, p.heads);
  if (l.grid_rows > 1 && l.grid_cols > 1)
    return fmt::format("a rank gathers 1/{} of the queries and 1/{} of the keys in place of all keys", l.grid_rows,
                       l.grid_cols);
  if (l.grid_rows > 1) return "queries and their results stay at home, and keys come to them";
  return "keys stay at home, and queries and their partial results travel";
}

std::string reason_of_layout(const Problem& p, const Wanted& wanted, const std::vector<LayoutRow>& rows) {
  const LayoutRow& chosen = rows.front();
  const auto ring = std::ranges::find(rows, "ring", &LayoutRow::name);
  std::string text = fmt::format("{} {}", chosen.name, shape_text(chosen.cost.layout));
  if (wanted.grid)
    text += " was asked for";
  else if (wanted.least_time)
    text += fmt::format(" takes the least time as modelled, {:.4g} ms", 1e3 * *chosen.cost.seconds);
  else
    text += fmt::format(" moves the fewest words of a rank, {}", chosen.cost.words.str());
  if (ring != rows.end() && ring != rows.begin() && ring->cost.words > 0)
    text += fmt::format(" ({:.2g} of the ring's words)", chosen.cost.words.to_double() / ring->cost.words.to_double());
  return text + ": " + why_few_words(p, chosen.cost.layout);
}

/// Where every query sees every key: which of all-gather and Ulysses moves fewer words, and the number of ranks where
/// they cross. A rank gets n - n/P more queries of H/P heads in Ulysses, and n - n/P more keys of h heads in an
/// all-gather, of h/P in Ulysses, but of one where P ranks share h key-value heads.
std::string crossing_text(const Problem& p, const Wanted& wanted, const std::vector<LayoutRow>& rows) {
  const auto gather = std::ranges::find(rows, "all-gather", &LayoutRow::name),
             heads = std::ranges::find(rows, "Ulysses", &LayoutRow::name);
  if (gather == rows.end() || heads == rows.end() || p.n_q != p.n_k || !Sight(p).sees_all()) return "";
  if (heads->cost.layout.keeps_heads && p.op == Operation::backward) return "";  // its heads came before
  const auto width = [&](Side side) {
    const RowWidths w = row_widths(p, side, 1);
    return (w.inputs + w.results).to_double();
  };
  const double H = static_cast<double>(p.heads), h = static_cast<double>(p.kv_heads.value_or(p.heads)),
               ratio = width(Side::queries) / width(Side::keys);
  const bool shared = wanted.ranks > p.kv_heads.value_or(p.heads);
  const bool heads_win = heads->cost.words < gather->cost.words;
  std::string text = fmt::format("; {} moves fewer words than {}", heads_win ? "Ulysses" : "all-gather",
                                 heads_win ? "all-gather" : "Ulysses");
  if (shared && h == 1) return text + ", as it does on any number of ranks that share one key-value head";
  text +=
      fmt::format(": they cross at P = {:.4g} ranks, where P {} = ", shared ? H * ratio / (h - 1) : 1 + H * ratio / h,
                  shared ? "(h - 1)" : "h");
  if (p.op == Operation::backward)
    text += "(2 d + d_v + 2) / (2 d + 2 d_v) H";
  else
    text += "(d + d_v + 1) / (d + d_v) H";
  return text + (shared ? "" : " + h") + fmt::format(" for H = {} query heads, h = {}", p.heads, h);
}

}  // namespace

std::string common_name(const Layout& layout) {
  Layout l = layout;
  l.reproducible = 0;
  if (layout.reproducible > 0) return common_name(l) + ", reproducible";
  if (l.ranks() == 1) return "one rank";
  if (l.head_groups > 1) return l.grid_rows * l.grid_cols == 1 ? "Ulysses" : "nested";
  if (l.grid_rows > 1 && l.grid_cols > 1) return "2-D";
  const bool keys = l.grid_rows > 1;
  if (l.transfer == Transfer::ring) return keys ? "ring" : "ring of queries";
  if (l.transfer == Transfer::gather) return keys ? "all-gather" : "all-gather of queries";
  return keys ? "exchange" : "split keys";
}

std::string shape_text(const Layout& l) { return fmt::format("{} x {} x {}", l.head_groups, l.grid_rows, l.grid_cols); }

LayoutPlan plan_layout(const Problem& p, const Wanted& wanted) {
  if (wanted.ranks < 1) throw InvalidProblem(fmt::format("ranks = {}: give 1 or more", wanted.ranks));
  if (wanted.grid && wanted.grid->ranks() > wanted.ranks)
    throw InvalidProblem(fmt::format("a layout of {} takes {} ranks of {}: give one that takes no more",
                                     shape_text(*wanted.grid), wanted.grid->ranks(), wanted.ranks));
  if (wanted.keeps_heads && wanted.grid && wanted.grid->head_groups == 1)
    throw InvalidProblem(
        fmt::format("a layout of {} keeps no heads, for none changes ranks: give more head groups, or "
                    "leave keeps_heads out",
                    shape_text(*wanted.grid)));
  if (wanted.M > 0 && wanted.reproducible > 0)
    throw InvalidProblem(
        fmt::format("M = {} with reproducible results: their tiles are the same for every fast memory; leave it out",
                    wanted.M.str()));
  if (wanted.M < 0) throw InvalidProblem(fmt::format("M = {}: give 1 word of fast memory or more", wanted.M.str()));
  LayoutSearch search(p, wanted);
  const LayoutCost* chosen = search.best([](const Layout&) { return true; });
  if (chosen == nullptr) throw InvalidProblem("no layout is as wanted");
  LayoutPlan plan;
  const auto add = [&](const LayoutCost* cost) {
    if (cost == nullptr) return;
    for (const LayoutRow& row : plan.rows)
      if (row.cost.layout == cost->layout) return;
    plan.rows.push_back(layout_row(p, wanted, *cost));
  };
  add(chosen);
  if (wanted.ranks > 1) {
    const LayoutCost* ring = search.best_order(search.line(Transfer::ring, Side::keys));
    const LayoutCost* other = search.best_order(search.line(Transfer::ring, Side::queries));
    add(ring);
    if (search.better(*other, *ring)) add(other);
    if (search.has_heads())
      add(search.best_order(search.heads()));
    else
      plan.refused.push_back(
          {"Ulysses", fmt::format("{} query heads on {} key-value heads do not go in {} equal groups", p.heads,
                                  p.kv_heads.value_or(p.heads), wanted.ranks)});
    add(search.best_order(search.line(Transfer::gather, Side::keys)));
    add(search.best([](const Layout& l) { return l.head_groups == 1 && l.grid_rows > 1 && l.grid_cols > 1; }));
    add(search.best([](const Layout& l) { return l.head_groups > 1 && l.grid_rows * l.grid_cols > 1; }));
  }
  plan.reason = reason_of_layout(p, wanted, plan.rows) + crossing_text(p, wanted, plan.rows);
  return plan;
}

}  // namespace redblue::ranks
