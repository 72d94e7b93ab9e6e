#include "redblue/machines/outline.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "plans.hpp"
#include "problems.hpp"
#include "redblue/machines/trace.hpp"
#include "redblue/masks/patterns.hpp"
#include "redblue/runtime/run.hpp"
#include "support/approximations.hpp"
#include "support/cases.hpp"
#include "support/generators.hpp"

namespace redblue::test {
namespace {

using machine::LineKind;
using machine::Operand;
using machine::OutlineLine;

/// A block of slow memory, or a part of a tile, that an operation touches.
struct Touch {
  std::string_view what;
  index_t row, col;
  friend bool operator==(const Touch&, const Touch&) = default;
};

std::ostream& operator<<(std::ostream& out, const Touch& t) {
  return out << t.what << '[' << t.row << ", " << t.col << ']';
}

void for_lines(const std::vector<OutlineLine>& lines, const auto& f) {
  for (const OutlineLine& l : lines) {
    f(l);
    for_lines(l.body, f);
  }
}

index_t value_of(const machine::Position& p, const std::vector<index_t>& counters) {
  index_t value = p.first;
  for (std::size_t i = 0; i < p.steps.size(); ++i) value += p.steps[i] * counters[counters.size() - 1 - i];
  return p.wraps ? (value % p.rows + p.rows) % p.rows : value;
}

/// The blocks and the parts of tiles that a reader of the outline touches, in order. False if it does not say where.
bool play(const std::vector<OutlineLine>& lines, std::vector<index_t>& counters, std::vector<Touch>& touches) {
  for (const OutlineLine& l : lines)
    if (l.kind == LineKind::loop) {
      EXPECT_EQ(l.rounds.steps.size(), counters.size());
      if (!l.rounds.regular) return false;
      for (index_t i = 0, rounds = value_of(l.rounds, counters); i < rounds; ++i) {
        counters.push_back(i);
        if (!play(l.body, counters, touches)) return false;
        counters.pop_back();
      }
    } else if (l.kind != LineKind::alloc && l.kind != LineKind::evict) {
      for (const Operand& o : l.operands) {
        EXPECT_EQ(o.row.steps.size(), counters.size());
        if (!o.row.regular || !o.col.regular) return false;
        touches.push_back(
            {o.tile.empty() ? name_of(o.array) : "tile", value_of(o.row, counters), value_of(o.col, counters)});
      }
    }
  return true;
}

std::vector<Touch> touches_of(const machine::Trace& trace) {
  std::vector<Touch> touches;
  for (const machine::Operation& op : trace.operations)
    for (const Arg& a : op.args) {
      if (a.shape().words() == 0) continue;
      if (op.kind == machine::Operation::Kind::decide || op.kind == machine::Operation::Kind::index) continue;
      touches.push_back({a.kind == Arg::Kind::stream ? name_of(a.block.array) : "tile", a.block.row, a.block.col});
    }
  return touches;
}

/// What every line adds up to is what the formula says.
void expect_sums(const plan::Plan& plan, const std::vector<OutlineLine>& lines) {
  Words reads, writes, macs, most;
  for_lines(lines, [&](const OutlineLine& l) {
    reads += l.reads;
    writes += l.writes;
    macs += l.macs;
    most = std::max(most, l.resident);
    EXPECT_EQ(l.kind == LineKind::loop, !l.body.empty());
  });
  EXPECT_EQ(reads, plan.row().io.total_reads());
  EXPECT_EQ(writes, plan.row().io.total_writes());
  EXPECT_EQ(2 * macs, plan.row().flops);
  const Words footprint = plan.row().footprint_bytes.value_or(plan.row().footprint);
  EXPECT_LE(most, footprint);
  EXPECT_GE(most + 16, footprint) << "streams take a word each";
}

Problem of(Operation op, Problem p) {
  p.op = op;
  if (op == Operation::backward_w) p.d_in = 6;
  return p;
}

/// Every operation with masks, grouped heads, other score functions and shared arrays, so that every schedule occurs.
std::vector<Problem> problems() {
  std::vector<Problem> list;
  for (std::size_t i = 0; i < kOperationNames.size(); ++i) {
    const auto op = static_cast<Operation>(i);
    list.push_back(of(op, attends(op) ? problem(24, 24, 4, 4) : problem(24, 1, 1, 4)));
    if (!attends(op)) continue;
    list.push_back(of(op, problem(23, 29, 5, 5)));
    list.push_back(of(op, problem(24, 600, 4, 4)));
    list.push_back(of(op, causal(problem(23, 29, 4, 4))));
    list.push_back(of(op, causal(problem(29, 23, 4, 4), -3)));
    Problem linear = of(op, with_heads(problem(24, 24, 4, 4), 2, 2, 2)), self = of(op, problem(24, 24, 4, 4));
    linear.score = Score::identity;
    if (op != Operation::second) list.push_back(linear);
    self.sources = Sources::self;
    if (is_projected(op)) list.push_back(self);
    if (is_projected(op)) continue;
    list.push_back(of(op, with_heads(problem(12, 20, 4, 6), 2, 4, 2)));
    Problem pattern = of(op, problem(24, 24, 4, 4));
    pattern.patterns = {std::make_shared<const RunLists>(patterns::longformer({24, 24}, 2, 2, 3))};
    list.push_back(pattern);
    if (op != Operation::forward && op != Operation::backward) continue;
    list.push_back(of(op, windowed(problem(40, 40, 4, 4), 5, 4)));
    if (!has_approximations()) continue;
    Problem approximate = of(op, problem(9, 8, 4, 4));
    approximate.lse_required = false;
    approximate.approximate("2:1");
    list.push_back(approximate);
    if (op != Operation::forward) continue;
    Problem by_rows = approximate;
    by_rows.approximate("2:1,centred,exact-keys=2");
    list.push_back(by_rows);
    for (const std::string_view method :
         {"linear", "performer:6", "linformer:3", "linformer:8,signs", "nystroem:3", "smyrf:rounds=2,cluster=3",
          "hyper:block=3,samples=4,planes=2", "sample:3", "2:1,gaussian", "2:1,centred,no-exact-rows", "2:1,cluster=3",
          "coreset:block=4,rank=2", "coreset:block=3,rank=4,tau=balanced,carried"}) {
      approximate.approximate(method);
      list.push_back(approximate);
    }
    approximate.n_k = approximate.n_q;
    approximate.approximate("reformer:rounds=2,chunk=3,buckets=2");
    list.push_back(approximate);
  }
  return list;
}

TEST(Outline, AddsUpToTheFormulaForEverySchedule) {
  std::set<std::string_view> seen, all;
  for (std::size_t op = 0; op < kOperationNames.size(); ++op)
    for (const std::string_view name : plan::Registry::built_in().names(static_cast<Operation>(op))) all.insert(name);
  for (const Problem& p : problems())
    for (const plan::Plan& plan : plans_of_every_schedule(p)) {
      SCOPED_TRACE(text_of(plan));
      seen.insert(plan.row().schedule);
      if (few_cases() && plan.io().total() > 20'000) continue;  // a long run
      expect_sums(plan, outline(plan));
    }
  EXPECT_EQ(seen, all);
}

TEST(Outline, LeadsItsReaderToTheBlocksThatTheScheduleTouches) {
  int played = 0, masked = 0, rings = 0;
  for (const Problem& p : problems())
    for (const plan::Plan& plan : plans_of_every_schedule(p)) {
      SCOPED_TRACE(text_of(plan));
      if (plan.io().total() > 100'000) continue;  // a long trace
      std::vector<index_t> counters;
      std::vector<Touch> touches;
      const std::vector<OutlineLine> lines = outline(plan);
      if (!play(lines, counters, touches)) {
        const std::string_view name = plan.row().schedule;
        EXPECT_TRUE(p.masked() || !p.patterns.empty() || plan.row().algorithm->traits.lists_pairs || name == "strips" ||
                    name == "polynomial_tiled" || name == "polynomial_rows_tiled" || name == "smyrf" ||
                    name == "hyper_attention" || name == "reformer" || name == "uniform_sample" ||
                    name == "polynomial_clusters" || (name == "materialised" && p.op == Operation::second))
            << "a mask makes rounds irregular, and so do lists of pairs, the last strip, the rows of the last tile, "
               "groups of monomials of many sizes, sorts and draws";
        continue;
      }
      ++played;
      masked += p.masked() ? 1 : 0;
      bool ring = false;
      for_lines(lines, [&](const OutlineLine& l) {
        ring = ring || std::ranges::any_of(l.operands, [](const Operand& o) { return o.row.wraps; });
      });
      rings += ring ? 1 : 0;
      const std::vector<Touch> wanted = touches_of(trace(plan));
      ASSERT_EQ(touches.size(), wanted.size());
      for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_EQ(touches[i], wanted[i]) << "the block number " << i;
    }
  EXPECT_GT(played, 150);
  EXPECT_GT(masked, 20);
  EXPECT_GT(rings, 3);
}

/// Small ones, in which loops have one round here and several there.
TEST(Outline, LeadsItsReaderUnderWindows) {
  int played = 0;
  for (const Operation op : {Operation::forward, Operation::backward})
    for (const std::string_view name : plan::Registry::built_in().names(op))
      for (const index_t n : {9, 17, 18, 24, 28})
        for (const auto& [left, right] : {std::pair{13, 2}, {5, n}, {3, 1}, {2, 2}, {1, 12}, {0, 1}})
          for (const Words M : {46, 54, 103, 120}) {
            plan::Options options{.M = M};
            options.schedule = name;
            std::optional<plan::Plan> plan;
            try {
              plan = plan::make_plan(of(op, windowed(problem(n, n, 1, 1), left, right)), options);
            } catch (const Error&) {
              continue;  // too small an M, or a schedule without windows
            }
            std::vector<index_t> counters;
            std::vector<Touch> touches;
            if (!play(outline(*plan), counters, touches)) continue;
            SCOPED_TRACE(fmt::format("{} n {} window {},{} M {}", text_of(*plan), n, left, right, M.str()));
            ++played;
            ASSERT_EQ(touches, touches_of(trace(*plan)));
          }
  EXPECT_GT(played, 1000);
}

TEST(Outline, IsShortHoweverLongTheScheduleIs) {
  for (const Operation op : {Operation::forward, Operation::backward, Operation::gradient_x})
    for (const Words M : first_of<Words>({16384, 3000, 300000})) {
      const index_t n = few_cases() ? 1024 : 2048;
      const plan::Plan plan = plan::make_plan(of(op, with_heads(problem(n, n, 64, 64), 2, 8, 8)), {.M = M});
      SCOPED_TRACE(text_of(plan));
      int lines = 0;
      const auto list = outline(plan);
      for_lines(list, [&](const OutlineLine&) { ++lines; });
      EXPECT_LT(lines, 80);
      expect_sums(plan, list);
    }
}

TEST(Outline, IsShortUnderAMask) {
  for (const index_t n : first_of<index_t>({1000, 1500})) {
    Problem p = of(Operation::backward, causal(problem(n, n, 4, 4)));
    const plan::Plan plan = plan::make_plan(p, {.M = 100, .schedule = "fused_query_outer"});
    int lines = 0;
    const auto list = outline(plan);
    for_lines(list, [&](const OutlineLine&) { ++lines; });
    EXPECT_LT(lines, 40) << n;
    expect_sums(plan, list);
  }
}

TEST(Outline, LeavesOutRoundsThatAreAlikeUnderAMask) {
  const plan::Plan plan = plan::make_plan(causal(problem(65536, 65536, 64, 64)), {.M = 16384, .schedule = "key_outer"});
  const auto list = outline(plan);
  expect_sums(plan, list);
  Words operations;
  for_lines(list, [&](const OutlineLine& l) { operations += l.times; });
  EXPECT_TRUE(operations > machine::Outliner::kMostOperations) << operations.str();
}

TEST(Outline, SaysWhatIsResidentInBytesWhereFastMemoryIsInBytes) {
  plan::Options o;
  o.memory = {4096, plan::residence_of(Operation::forward, DType::bf16, DType::f32)};
  o.schedule = "flash";
  const plan::Plan plan = plan::make_plan(problem(64, 64, 8, 8), o);
  const auto lines = outline(plan);
  expect_sums(plan, lines);
  Words q, output;
  for_lines(lines, [&](const OutlineLine& l) {
    if (l.kind == LineKind::load) q = l.resident;
    if (l.kind == LineKind::alloc && l.operands[0].array == SlowArray::O) output = l.resident - q;
  });
  EXPECT_EQ(output, 2 * q) << "a block of outputs in f32 beside one of queries in bf16";
}

}  // namespace
}  // namespace redblue::test
