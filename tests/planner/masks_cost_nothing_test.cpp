#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "redblue/language/error.hpp"
#include "redblue/masks/patterns.hpp"
#include "redblue/planner/planner.hpp"
#include "redblue/problem/sequences.hpp"

/// No plan under a mask or a pattern costs more than the same problem without, and none is refused under an M at which
/// that one runs, whatever the options. Two things are not compared (docs/model.md): the score function identity, whose
/// products may be taken in another order where nothing is hidden, and what of sinks is read more than once where a
/// mask leaves several parts.
namespace redblue::test {
namespace {

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  index_t operator()(index_t least, index_t most) {
    return std::uniform_int_distribution<index_t>(least, most)(random_);
  }
  bool once_in(index_t n) { return (*this)(1, n) == 1; }

 private:
  std::mt19937 random_;
};

void add_modifiers(Problem& p, Draw& draw) {
  p.alibi = draw.once_in(3);
  if (draw.once_in(5))
    p.bias =
        draw.once_in(2) ? std::array<index_t, 4>{1, 1, 1, p.n_k} : std::array<index_t, 4>{1, p.heads, p.n_q, p.n_k};
  if (p.score != Score::softmax) return;
  if (draw.once_in(6)) p.softcap = 5;
  if (is_of_pairs(p.op)) return;
  if (draw.once_in(6)) p.dropout = 0.1;
  p.sinks = draw.once_in(5);
}

Problem any_problem(Operation op, Draw& draw) {
  Problem p{.op = op};
  const index_t most = draw.once_in(40) ? 300 : draw.once_in(6) ? 48 : 20;
  p.n_q = draw(1, most);
  p.n_k = draw.once_in(2) ? p.n_q : draw(1, most);
  p.d = draw(1, 8);
  p.d_v = draw.once_in(2) ? p.d : draw(1, 8);
  p.heads = draw(1, 4);
  if (draw.once_in(5)) p.score = draw.once_in(2) ? Score::sigmoid : Score::relu;
  if (is_projected(op)) {
    if (op == Operation::backward_w) p.d_in = draw(1, 7);
    return p;
  }
  if (p.heads % 2 == 0 && draw.once_in(2)) p.kv_heads = p.heads / 2;
  if (draw.once_in(4)) p.kv_heads = 1;
  add_modifiers(p, draw);
  return p;
}

/// n cut into `parts` lengths, as their cumulative sums.
std::vector<index_t> cut(index_t n, index_t parts, Draw& draw) {
  std::vector<index_t> ends{0, n};
  for (index_t k = 1; k < parts; ++k) ends.push_back(draw(0, n));
  std::ranges::sort(ends);
  return ends;
}

RunLists any_pattern(const Problem& p, Draw& draw) {
  const patterns::Between x{p.n_q, p.n_k};
  switch (draw(0, 3)) {
    case 0:
      return patterns::longformer(x, draw(0, 3), draw(0, 3), draw(1, 2));
    case 1:
      return patterns::strided(x, draw(2, 5));
    case 2:
      return patterns::window(x, draw(0, 9), draw(0, 9), draw(2, 3));
    default: {
      const index_t rows = draw(1, 4), cols = draw(1, 4), share = draw(1, 9);
      std::vector<std::uint8_t> seen(static_cast<std::size_t>(ceil_div(p.n_q, rows) * ceil_div(p.n_k, cols)));
      for (std::uint8_t& one : seen) one = draw(0, 9) < share ? 1 : 0;
      return patterns::of_blocks(x, rows, cols, seen);
    }
  }
}

/// The problem with something hidden.
Problem masked(Problem p, Draw& draw) {
  const auto edge = [&] { return std::optional(draw(0, p.n_k)); };
  const index_t kind = draw(0, 7);
  if (draw.once_in(2)) p.causal_offset = draw(-4, p.n_k);
  if (kind == 0 || kind == 3) p.causal = true;
  if (kind == 3) p.prefix = draw(1, p.n_k);
  if (kind == 1 || kind == 2) p.window_left = edge();
  if (kind == 2) p.window_right = edge();
  if (kind == 4) {
    const index_t parts = draw(1, 5);
    p.cu_seqlens_q = cut(p.n_q, parts, draw);
    p.cu_seqlens_k = p.n_q == p.n_k ? p.cu_seqlens_q : cut(p.n_k, parts, draw);
    p.causal = draw.once_in(2);
  }
  if (kind > 4) p.patterns = {std::make_shared<const RunLists>(any_pattern(p, draw))};
  return p;
}

plan::Options any_options(const Problem& plain, Draw& draw) {
  plan::Options o;
  const index_t rows = 2 * std::max<index_t>(plain.n_q, 4);
  o.M = draw.once_in(3) ? draw(3, 12) : draw(3, (plain.d + plain.d_v) * (draw.once_in(2) ? rows : 8));
  if (draw.once_in(3)) o.multiple = {draw(1, 4), draw(1, 4), draw(1, 3)};
  if (draw.once_in(5)) o.write_cost = static_cast<double>(draw(0, 30)) / 10;
  if (draw.once_in(6)) o.reserve = draw(0, 2);
  if (draw.once_in(6)) o.double_buffer = true;
  if (draw.once_in(5)) o.memory = plan::ByteMemory{4 * o.M, plan::residence_of(plain.op, DType::bf16, DType::f32)};
  return o;
}

/// The plan; nothing where fast memory is too small.
std::optional<plan::Plan> plan_of(const Problem& p, const plan::Options& o) {
  try {
    return plan::make_plan(p, o);
  } catch (const CapacityError&) {
    return std::nullopt;
  }
}

/// What a plan may cost beside that of the problem without a mask: sinks that pass more than once.
Words more_of_sinks(const plan::Plan& with, const plan::Plan& without) {
  const auto sinks = [](const plan::Plan& plan) { return plan.row().io.reads[index_of(SlowArray::sinks)]; };
  return std::max<Words>(0, sinks(with) - sinks(without)) * plan::kCostUnit;
}

class MasksCostNothing : public ::testing::TestWithParam<Operation> {};

TEST_P(MasksCostNothing, NeitherWordsNorRoom) {
  const char* more = std::getenv("REDBLUE_MASK_CASES");
  const auto cases = more != nullptr ? static_cast<unsigned>(std::strtoul(more, nullptr, 10)) : 300U;
  for (unsigned seed = 1; seed <= cases; ++seed) {
    Draw draw(seed);
    const Problem plain = any_problem(GetParam(), draw), hidden = masked(plain, draw);
    const plan::Options o = any_options(plain, draw);
    const auto without = plan_of(plain, o);
    if (!without) continue;
    const auto with = plan_of(hidden, o);
    ASSERT_TRUE(with) << "seed " << seed << " M " << o.M.str() << " is refused";
    ASSERT_LE(with->row().cost, without->row().cost + more_of_sinks(*with, *without))
        << "seed " << seed << " M " << o.M.str();
  }
}

/// Blocks of more than 1,024 queries, of which not all sizes are tried.
TEST(FlashPinned, MovesNoMoreWordsUnderAMaskInLargeBlocks) {
  Problem plain{.n_q = 4096, .n_k = 4096, .d = 64, .d_v = 64};
  std::vector<Problem> hidden(4, plain);
  hidden[0].causal = true;
  hidden[1].window_left = 3896;
  hidden[2].window_left = 2000, hidden[2].window_right = 2000;
  hidden[3].causal = true, hidden[3].causal_offset = 3000;
  for (const index_t M : {288358, 402000, 498073, 560000, 700000}) {
    const plan::Options o{.M = M, .schedule = "flash_pinned"};
    for (const Problem& p : hidden)
      EXPECT_LE(plan_of(p, o)->row().io.total(), plan_of(plain, o)->row().io.total()) << M << ' ' << &p - hidden.data();
  }
}

INSTANTIATE_TEST_SUITE_P(EveryOperation, MasksCostNothing,
                         ::testing::Values(Operation::forward, Operation::backward, Operation::scores,
                                           Operation::weights, Operation::forward_x, Operation::gradient_x,
                                           Operation::backward_x, Operation::backward_w),
                         [](const auto& p) {
                           std::string name(name_of(p.param));
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace redblue::test
