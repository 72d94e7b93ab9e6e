#include <gtest/gtest.h>

#include <algorithm>

#include "redblue/planner/planner.hpp"
#include "runtime/matrices.hpp"

/// Runs whose sums go over 20,003 keys or queries: in steps of some hundred of them, fp32 loses no more than plain
/// attention whose sums are cut into blocks of 256 terms.
namespace redblue::test {
namespace {

using enum SlowArray;

double largest_error(const oracle::Matrix<float>& x, const oracle::Matrix<double>& exact) {
  double most = 0;
  for (std::size_t i = 0; i < x.words.size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(x.words[i]) - exact.words[i]));
  return most;
}
oracle::Matrices<double> wide(const oracle::Matrices<float>& list) {
  oracle::Matrices<double> result;
  for (const auto& [a, m] : list) {
    result[a] = oracle::Matrix<double>(m.shape);
    std::copy(m.words.begin(), m.words.end(), result[a].words.begin());
  }
  return result;
}

/// Runs a plan with tiles of `tile_size` >= 128 and holds its outputs against fp64, with plain fp32 as the measure.
void expect_as_exact_as_plain(const Problem& p, std::string_view schedule, std::string_view tile_size,
                              oracle::Matrices<float> inputs, const oracle::Matrices<float>& plain,
                              const oracle::Matrices<double>& exact) {
  SCOPED_TRACE(schedule);
  plan::Options o;
  o.schedule = schedule;
  o.M = 65536;
  o.multiple.query = o.multiple.key = 128;
  const plan::Plan plan = plan::make_plan(p, o);
  const auto found = std::ranges::find(plan.row().tiling, tile_size, &schedule::TileSize::name);
  ASSERT_NE(found, plan.row().tiling.end());
  EXPECT_GE(found->value, 128);
  const std::vector<SlowArray> outputs = outputs_of(p);
  for (const SlowArray a : outputs) inputs[a] = oracle::Matrix<float>(exact.at(a).shape);
  run(plan, tensors_of(inputs));
  for (const SlowArray a : outputs)
    EXPECT_LE(largest_error(inputs.at(a), exact.at(a)), 2 * largest_error(plain.at(a), exact.at(a))) << name_of(a);
}

TEST(LongRuns, OverKeysAreAsExactAsPlainAttention) {
  Problem p = problem(64, 20003, 32, 32);
  p.lse_required = true;
  const auto x = random_matrices({{Q, {64, 32}}, {K, {20003, 32}}, {V, {20003, 32}}});
  const auto plain = oracle::Dense<float>(p, x).forward();
  const auto exact = oracle::Dense<double>(p, wide(x)).forward();
  for (const char* schedule : {"flash", "flash_pinned", "split_keys"})
    expect_as_exact_as_plain(p, schedule, "Bc", x, plain, exact);
}

/// Each group of keys rounds its lse once, and the merge of all rounds once, however many there are.
TEST(LongRuns, LseOfManyGroupsOfKeysIsAsExactAsPlainAttention) {
  Problem p = problem(16, 100003, 8, 8);
  p.lse_required = true;
  const auto x = random_matrices({{Q, {16, 8}}, {K, {100003, 8}}, {V, {100003, 8}}});
  expect_as_exact_as_plain(p, "split_keys", "Bc", x, oracle::Dense<float>(p, x).forward(),
                           oracle::Dense<double>(p, wide(x)).forward());
}

TEST(LongRuns, OverQueriesAreAsExactAsPlainAttention) {
  Problem p = problem(20003, 64, 32, 32);
  p.op = Operation::backward;
  auto x = random_matrices({{Q, {20003, 32}}, {K, {64, 32}}, {V, {64, 32}}, {dO, {20003, 32}}});
  const auto given = oracle::Dense<float>(p, x).forward();
  x.insert(given.begin(), given.end());
  const auto plain = oracle::Dense<float>(p, x).gradients();
  const auto exact = oracle::Dense<double>(p, wide(x)).gradients();
  for (const auto& [schedule, tile_size] : {std::pair{"fused_key_outer", "br"}, {"fused_query_outer", "Br"}})
    expect_as_exact_as_plain(p, schedule, tile_size, x, plain, exact);
}

}  // namespace
}  // namespace redblue::test
