#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "redblue/planner/planner.hpp"
#include "redblue/schedules/backward/fused_key_outer.hpp"
#include "redblue/schedules/backward/fused_values.hpp"
#include "redblue/schedules/backward/grouped_key_outer.hpp"
#include "redblue/schedules/backward/materialised.hpp"
#include "redblue/schedules/gradient/small_cache.hpp"
#include "redblue/schedules/parts/tile_sizes.hpp"
#include "support/generators.hpp"
#include "support/table.hpp"

/// Tables 4.2 and 4.3 of the theory, word for word: what two simulators and an exhaustive planner, written from the
/// theory alone, found.
namespace redblue::test {
namespace {

using plan::Plan;
using plan::Row;
using schedule::GemmTiling;
using schedule::ScoreTiling;

struct Line {
  TableRow cells;
  index_t d, M;
  Plan plan;

  Line(TableRow row, Operation op) : cells(std::move(row)), d(number("d")), M(number("M")) {
    Problem p = problem(4096, 4096, d, d);
    p.op = op;
    plan::Options options;
    options.M = M;
    plan = plan::make_plan(p, options);
  }
  const std::string& text(const std::string& column) const { return cells.at(column); }
  /// 0 where the table says nothing.
  index_t number(const std::string& column) const { return text(column).empty() ? 0 : std::stoll(text(column)); }
  std::string where() const { return "d = " + text("d") + ", M = " + text("M"); }

  /// The row of that label or name.
  const Row* row(std::string_view name) const {
    for (const Row& r : plan.rows)
      if (r.algorithm->is_called(name)) return &r;
    return nullptr;
  }
  void expect_words(const std::string& schedule) const {
    const Row* r = row(schedule);
    EXPECT_EQ(r == nullptr ? "" : r->io.total().str(), text(schedule)) << schedule;
  }
  void expect_tile_size(const std::string& schedule, std::string_view tile_size, const std::string& column) const {
    const Row* r = row(schedule);
    index_t value = 0;
    if (r != nullptr)
      for (const schedule::TileSize& k : r->tiling)
        if (k.name == tile_size) value = k.value;
    EXPECT_EQ(value, number(column)) << column;
  }
  const bound::Bound& bound(std::string_view name) const {
    for (const bound::Bound& b : plan.bounds)
      if (b.name == name) return b;
    throw std::runtime_error("no bound " + std::string(name));
  }

  /// The tile of a column is the one chosen; or its transpose, and then it fits as well and the words are the same.
  template <class S, class Tile>
  void expect_tile(const std::string& column, Tile S::Tiling::* member) const {
    const Row* r = nullptr;
    for (const Row& candidate : plan.rows)
      if (candidate.schedule == S::name) r = &candidate;
    if (r == nullptr) {
      EXPECT_EQ(text(column), "") << column;
      return;
    }
    const typename S::Tiling chosen = schedule::tiling_from<typename S::Tiling>(r->tiling);
    if (text_of(chosen.*member) == text(column)) return;
    typename S::Tiling other = chosen;
    other.*member = transpose(chosen.*member);
    EXPECT_EQ(text_of(other.*member), text(column)) << column;
    const Sizes x = plan.problem.sizes();
    EXPECT_EQ(S::io(x, other).total(), r->io.total()) << column;
    EXPECT_LE(S::footprint(x, other), M) << column;
  }

 private:
  static std::string text_of(ScoreTiling t) {
    return t.panel ? fmt::format("{}xp", t.a) : fmt::format("{}x{}", t.a, t.b);
  }
  static std::string text_of(GemmTiling t) { return fmt::format("{}x{}", t.b1, t.b2); }
  static ScoreTiling transpose(ScoreTiling t) { return {t.panel, t.b, t.a}; }
  static GemmTiling transpose(GemmTiling t) { return {t.b2, t.b1}; }
};

TEST(BackwardPlanner, ReproducesTable42) {
  const auto table = table_of_theory_42();
  ASSERT_EQ(table.size(), 24U);
  for (const TableRow& cells : table) {
    const Line line(cells, Operation::backward);
    SCOPED_TRACE(line.where());
    for (const char* schedule : {"e1", "e2", "e3", "e4", "e5", "e6"}) line.expect_words(schedule);
    line.expect_tile_size("e1", "Bc", "e1_Bc");
    line.expect_tile_size("e2", "Br", "e2_Br");
    line.expect_tile_size("e3", "Br", "e3_Br");
    line.expect_tile_size("e3", "Bc", "e3_Bc");
    line.expect_tile_size("e4", "Bc", "e4_Bc");
    line.expect_tile_size("e6", "Bc", "e6_Bc");
    using schedule::MaterialisedBackward, schedule::FusedValuesBackward;
    line.expect_tile<MaterialisedBackward>("e5_scores", &MaterialisedBackward::Tiling::P);
    line.expect_tile<MaterialisedBackward>("e5_dV", &MaterialisedBackward::Tiling::dV);
    line.expect_tile<FusedValuesBackward>("e6_scores", &FusedValuesBackward::Tiling::P);

    // The table has the lines for all of class PA; B10, which is younger, may be larger.
    std::vector<bound::Bound> lines = line.plan.bounds;
    std::erase_if(lines, [](const bound::Bound& b) { return b.name == "B10"; });
    const bound::Bound best = bound::best(lines);
    EXPECT_EQ(best.words.str(), line.text("bound"));
    EXPECT_EQ(best.name, line.text("bound_line") == "t" ? "trivial" : line.text("bound_line"));
    EXPECT_EQ(line.plan.row().algorithm->label, line.text("best"));
    const double ratio = line.plan.row().io.total().to_double() / best.words.to_double();
    EXPECT_EQ(fmt::format("{:.3f}", ratio), line.text("ratio"));
    EXPECT_EQ(line.plan.bound.words, std::max(best.words, line.bound("B10").words));
  }
}

TEST(BackwardPlanner, GroupsKeysByTheirWork) {
  using S = schedule::GroupedKeyOuterBackward;
  const auto value = plan::Registry::built_in().find(Operation::backward, S::name);
  schedule::Limits limits;
  for (const index_t n : {511, 512, 1500, 2048, 8192})
    for (const bool causal : {false, true})
      for (const index_t M : {16384, 65536, 524288}) {
        SCOPED_TRACE(fmt::format("n = {}, causal {}, M = {}", n, causal, M));
        const Sizes x{n, n, 64, 64, {.hi = causal ? 1 : Mask::kFar}};
        limits.M = M;
        const S::Tiling t = S::choose_tiling(x, limits).value();
        EXPECT_EQ(t.G, std::clamp<index_t>(n / 256, 1, 8));
        const schedule::KeyGroups groups(x, t);
        const auto pairs_before = [&](index_t key) { return Pairs{x.mask, n, key}.count().to_double(); };
        for (index_t g = 0; g < t.G; ++g)
          EXPECT_LE(pairs_before(groups(g).end) - pairs_before(groups(g).begin),
                    1.15 * pairs_before(n) / static_cast<double>(t.G));
        const Words summed = groups.summed().size();
        // e1 on each group. But D is formed once, and what a later group has of dQ is read again by the sum.
        Words e1 = schedule::output_dots_io(x).total();
        for (index_t g = 0; g < t.G; ++g) {
          if (groups(g).size() == 0) continue;
          const Sizes group = schedule::KeyGroups::of_keys(x, groups(g));
          e1 += schedule::FusedKeyOuterBackward::io(group, {t.Bc, t.br}).total();
          e1 += Words(group.key0 > 0 ? group.n_q * 64 : 0) - schedule::output_dots_io(group).total();
        }
        EXPECT_EQ(S::io(x, t).total(), e1 + 2 * summed * 64);
        if (!causal) {
          EXPECT_EQ(e1, schedule::FusedKeyOuterBackward::io(x, {t.Bc, t.br}).total());
        }
        EXPECT_EQ(value->workspace_words(x, schedule::tile_sizes_of(t)), Words(n) + Words(t.G - 1) * n * 64);
      }
}

TEST(GradientPlanner, ReproducesTable43) {
  const auto table = table_of_theory_43();
  ASSERT_EQ(table.size(), 24U);
  for (const TableRow& cells : table) {
    const Line line(cells, Operation::gradient_x);
    SCOPED_TRACE(line.where());
    for (const char* schedule : {"6R", "9R-a", "9R-b", "9R-c", "9R-d", "9R-e", "9R-f"}) line.expect_words(schedule);
    for (const char* schedule : {"9R-a", "9R-b", "9R-c", "9R-d"})
      line.expect_tile_size(schedule, "Br", std::string(schedule) + "_Br");
    for (const char* schedule : {"9R-e", "9R-f"}) line.expect_tile_size(schedule, "Bc", std::string(schedule) + "_Bc");
    using schedule::SmallCacheGradient;
    line.expect_tile<SmallCacheGradient>("6R_P", &SmallCacheGradient::Tiling::f);
    line.expect_tile<SmallCacheGradient>("6R_U", &SmallCacheGradient::Tiling::U);

    // The printed algorithms: their own tiles, whether they fit or not.
    const Row *six = line.row("algorithm_6"), *nine = line.row("algorithm_9");
    ASSERT_TRUE(six != nullptr && nine != nullptr);
    EXPECT_EQ(six->io.total().str(), line.text("alg6"));
    line.expect_tile_size("algorithm_6", "B", "alg6_B");
    EXPECT_EQ(six->footprint.str(), line.text("alg6_footprint"));
    EXPECT_TRUE(six->fits);
    EXPECT_EQ(nine->io.total().str(), line.text("alg9"));
    line.expect_tile_size("algorithm_9", "Br", "alg9_Br");
    line.expect_tile_size("algorithm_9", "Bc", "alg9_Bc");
    EXPECT_EQ(fmt::format("{:.2f}", nine->footprint.to_double() / static_cast<double>(line.M)),
              line.text("alg9_footprint_per_M"));
    EXPECT_FALSE(nine->fits);

    const Row& best = line.plan.row();
    const bound::Bound &derived = line.bound("g'"), &restricted = line.bound("g*");
    EXPECT_EQ(line.plan.bound.words.str(), line.text("bound"));
    EXPECT_EQ(derived.words.str(), line.text("bound_derived"));
    EXPECT_EQ(restricted.words.str(), line.text("bound_restricted"));
    EXPECT_EQ(best.schedule, line.text("best"));
    EXPECT_EQ(fmt::format("{:.2f}", best.ratio.value()), line.text("ratio"));
    EXPECT_EQ(
        fmt::format("{:.3f}", best.io.total().to_double() / std::max(line.plan.bound.words, derived.words).to_double()),
        line.text("ratio_derived"));
  }
}

TEST(GradientPlanner, NeverChoosesAPrintedAlgorithmUnasked) {
  for (const index_t n : {16, 64, 256})
    for (const index_t M : {300, 1000, 10'000, 100'000, 10'000'000}) {
      Problem p = problem(n, n, 8, 8);
      p.op = Operation::gradient_x;
      plan::Options options;
      options.M = M;
      const Plan plan = plan::make_plan(p, options);
      EXPECT_TRUE(plan.row().algorithm->traits.stable && plan.row().fits) << n << ' ' << M;
      for (const Row& r : plan.rows) {
        EXPECT_EQ(r.fits, r.footprint <= M) << r.schedule;
        EXPECT_FALSE(r.algorithm->traits.printed && r.algorithm->traits.stable) << r.schedule;
      }
      for (const char* printed : {"algorithm_6", "algorithm_9"}) {
        options.schedule = printed;
        EXPECT_EQ(plan::make_plan(p, options).row().schedule, printed);
      }
    }
}

}  // namespace
}  // namespace redblue::test
