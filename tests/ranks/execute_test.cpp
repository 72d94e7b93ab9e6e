#include <fmt/format.h>
#include <gtest/gtest.h>

#include "drawn_layout.hpp"
#include "redblue/planner/planner.hpp"
#include "redblue/ranks/in_process.hpp"
#include "redblue/ranks/work.hpp"
#include "redblue/verify/verify.hpp"
#include "shared.hpp"
#include "support/cases.hpp"
#include "support/refusal.hpp"

/// Attention over ranks, in threads of this process, against the oracle of the whole.
namespace redblue::test::of_ranks {
namespace {

using ranks::Layout;
using ranks::World;

ranks::How how_of(DType compute) {
  ranks::How how;
  how.compute = compute;
  how.threads = 1;
  how.plan.M = 300;
  how.patience = std::chrono::seconds(60);
  return how;
}

/// A gradient over a layout that keeps heads: after a forward pass that does, with the same rows.
std::vector<ranks::Ran> run_after_forward(const World& world, Filled& x, std::span<const Tensors> tensors,
                                          ranks::How how, std::uint64_t delays) {
  std::vector<ranks::Kept> kept(tensors.size());
  if (world.layout().keeps_heads) how.kept = kept.data();
  if (world.layout().keeps_heads && world.problem().op == Operation::backward) {
    const World forward(world.problem().forward(), world.layout());
    Filled before(forward.problem(), how.compute, Strides::bhsd);
    for (auto& [a, array] : before.arrays)
      if (const auto given = x.arrays.find(a); given != x.arrays.end()) array.set(given->second.get());
    Shared shared(forward, before);
    run_in_process(forward, shared.tensors(), how);
  }
  return run_in_process(world, tensors, how, delays);
}

std::string text_of(const Problem& p, const Layout& l) {
  return fmt::format(
      "{} batch {} heads {}/{} n {}x{} d {}/{} causal {} window {}/{} prefix {}, {} groups {} x {} {} {}",
      name_of(p.op), p.batch, p.heads, *p.kv_heads, p.n_q, p.n_k, p.d, p.d_v, p.causal, p.window_left.value_or(-1),
      p.window_right.value_or(-1), p.prefix, l.head_groups, l.grid_rows, l.grid_cols, name_of(l.transfer),
      name_of(l.ownership));
}

/// o and lse of the whole, for gradients.
void add_forward(Filled& x, DType dtype) {
  const Problem p = x.p.forward();
  RunOptions options;
  options.compute = dtype;
  run(plan::make_plan(p, {.M = 300}), x.tensors(), options);
}

Filled filled(const Problem& p, DType dtype) {
  Problem with_lse = p;
  with_lse.lse_required = p.op == Operation::forward;
  Filled x(with_lse, dtype, Strides::bhsd);
  if (p.op == Operation::backward) add_forward(x, dtype);
  return x;
}

TEST(Ranks, ComputeWhatTheWholeIsAndMoveWhatTheFormulaSays) {
  int ran = 0;
  for (std::uint64_t seed = 1; ran < cases(200); ++seed) {
    DrawnRanks draw(seed);
    const Problem p = draw.problem(draw.one_in(2) ? Operation::forward : Operation::backward, 24);
    Layout layout = draw.layout(4);
    layout.keeps_heads = layout.head_groups > 1 && draw.one_in(2);
    std::optional<World> world;
    try {
      world.emplace(p, layout);
    } catch (const InvalidProblem&) {
      continue;
    }
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, text_of(p, layout)));
    const DType dtype = draw.one_in(2) ? DType::f32 : DType::f64;
    Filled x = filled(p, dtype);
    Shared shared(*world, x);
    const auto tensors = shared.tensors();
    const std::vector<ranks::Ran> each =
        run_after_forward(*world, x, tensors, how_of(dtype), draw.one_in(4) ? seed : 0);
    EXPECT_TRUE(shared.collect());
    for (int r = 0; r < world->ranks(); ++r) {
      EXPECT_EQ(each[static_cast<std::size_t>(r)].crossed, crossing_of(*world, r));
      EXPECT_EQ(each[static_cast<std::size_t>(r)].held_bytes,
                count(*world, program_of(*world, r)).held * static_cast<index_t>(size_of(dtype)));
      EXPECT_EQ(each[static_cast<std::size_t>(r)].io, local_io(*world, program_of(*world, r), how_of(dtype).plan.M));
    }
    const Verification v = verify(x.p, x.tensors(), dtype, {.additions = 64, .lse = 64});
    for (const Deviation& d : v.outputs) EXPECT_TRUE(d.ok()) << d.name << " " << d.error << " of " << d.tolerance;
    ++ran;
    if (HasFailure()) return;
  }
}

/// Kept heads are those that would travel, and save 2d + d_v words of a row and head.
TEST(Ranks, KeepHeadsForTheGradient) {
  Problem p = problem(24, 24, 5, 3);
  p.op = Operation::backward;
  p.heads = p.kv_heads.emplace(4);
  std::vector<std::vector<unsigned char>> outputs[2];
  Words received[2];
  for (const bool keeps : {false, true}) {
    Filled x = filled(p, DType::f32);
    const World world(p, {.head_groups = 4, .keeps_heads = keeps});
    Shared shared(world, x);
    received[keeps] = run_after_forward(world, x, shared.tensors(), how_of(DType::f32), 0)[1].crossed.received.inputs;
    shared.collect();
    outputs[keeps] = x.outputs();
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(received[0], (24 - 6) * (2 * 5 + 2 * 3 + 2));
  EXPECT_EQ(received[0] - received[1], (24 - 6) * (2 * 5 + 3));
}

template <class E, class F>
void expect_refusal(const F& f, std::string_view words) {
  const std::string refusal = refusal_of<E>(f);
  EXPECT_NE(refusal.find(words), std::string::npos) << refusal;
}

struct Case {
  Problem problem;
  Layout layout;
  DType dtype = DType::f32;
};
std::vector<std::vector<unsigned char>> outputs_of_run(const Case& c, std::uint64_t delays) {
  Filled x = filled(c.problem, c.dtype);
  const World world(c.problem, c.layout);
  Shared shared(world, x);
  const auto tensors = shared.tensors();
  run_in_process(world, tensors, how_of(DType::f32), delays);
  shared.collect();
  return x.outputs();
}

Problem causal_groups(Operation op) {
  Problem p = problem(23, 23, 4, 3);
  p.op = op;
  p.heads = 4;
  p.kv_heads = 2;
  p.causal = true;
  return p;
}

TEST(Ranks, GiveTheSameBitsWheneverMessagesArrive) {
  for (const Operation op : {Operation::forward, Operation::backward})
    for (const ranks::Transfer transfer : {ranks::Transfer::exchange, ranks::Transfer::gather, ranks::Transfer::ring}) {
      const bool ring = transfer == ranks::Transfer::ring;
      const Case c{causal_groups(op), {2, 3, ring ? 1 : 2, transfer, ranks::Ownership::zig_zag}};
      const auto prompt = outputs_of_run(c, 0);
      for (std::uint64_t seed = 1; seed <= static_cast<std::uint64_t>(cases(20)); ++seed)
        EXPECT_EQ(outputs_of_run(c, seed), prompt) << seed;
    }
}

/// Outputs in 16 bits are sums in f32, rounded once.
TEST(Ranks, TakeAndGive16Bits) {
  for (const Operation op : {Operation::forward, Operation::backward}) {
    const Case c{causal_groups(op), {1, 2, 2}, DType::bf16};
    Filled x = filled(c.problem, c.dtype);
    const World world(c.problem, c.layout);
    Shared shared(world, x);
    const auto tensors = shared.tensors();
    run_in_process(world, tensors, how_of(DType::f32));
    shared.collect();
    const Verification v = verify(x.p, x.tensors(), DType::f32, {.additions = 8, .lse = 4});
    for (const Deviation& d : v.outputs) EXPECT_TRUE(d.ok()) << d.name << " " << d.error << " of " << d.tolerance;
  }
}

std::string what_is_thrown(const World& world, std::vector<Tensors> tensors, const ranks::How& how) {
  try {
    run_in_process(world, tensors, how);
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing";
}

TEST(Ranks, RefuseTogetherWhatOneOfThemCannotDo) {
  const Problem p = causal_groups(Operation::forward);
  const World world(p, {.grid_rows = 3});
  Filled x = filled(p, DType::f32);
  Shared shared(world, x);
  auto tensors = shared.tensors();
  const Tensor q = tensors[1][SlowArray::Q];
  tensors[1][SlowArray::Q].shape[2] -= 1;
  EXPECT_NE(what_is_thrown(world, tensors, how_of(DType::f32)).find("q is [1, 4, 7, 4] on rank 1"), std::string::npos)
      << what_is_thrown(world, tensors, how_of(DType::f32));
  tensors[1][SlowArray::Q] = q;
  tensors[2][SlowArray::V].dtype = DType::bf16;
  EXPECT_NE(what_is_thrown(world, tensors, how_of(DType::f32)).find("rank 2 was not asked for what rank 0 was"),
            std::string::npos);
  tensors[2][SlowArray::V].dtype = DType::int8;
  EXPECT_NE(what_is_thrown(world, tensors, how_of(DType::f32)).find("v is int8 on rank 2: ranks do not send scales"),
            std::string::npos);
  tensors.pop_back();
  EXPECT_NE(what_is_thrown(world, tensors, how_of(DType::f32)).find("tensors of 2 ranks for a layout of 3"),
            std::string::npos);
}

TEST(Ranks, RefuseHeadsThatNoForwardPassKept) {
  const Problem p = causal_groups(Operation::backward);
  expect_refusal<InvalidProblem>([&] { World(p, {.grid_rows = 2, .keeps_heads = true}); },
                                 "keeps_heads with 1 head group");
  const World world(p, {.head_groups = 2, .keeps_heads = true});
  Filled x = filled(p, DType::f32);
  Shared shared(world, x);
  ranks::How how = how_of(DType::f32);
  EXPECT_NE(what_is_thrown(world, shared.tensors(), how).find("keeps_heads without How::kept"), std::string::npos);
  std::vector<ranks::Kept> kept(2);
  how.kept = kept.data();
  EXPECT_NE(what_is_thrown(world, shared.tensors(), how).find("no forward pass has kept q on rank"), std::string::npos);
  float word = 0;
  for (ranks::Kept& of_rank : kept) of_rank.keep(SlowArray::Q, {}, Tensor(&word, DType::f32, {1, 1, 1, 1}));
  EXPECT_NE(what_is_thrown(world, shared.tensors(), how).find("q was kept as [1, 1, 1, 1] of f32"), std::string::npos);
  const World moves(p, {.head_groups = 2});
  EXPECT_NE(what_is_thrown(moves, shared.tensors(), how).find("How::kept without keeps_heads"), std::string::npos);
}

TEST(Ranks, RefuseWhatTheyDoNotShare) {
  Problem p = causal_groups(Operation::forward);
  p.dropout = 0.5;
  p.dropout_from = {0, p.heads, 0, 0};
  expect_refusal<Unsupported>([&] { World(p, {}); }, "ranks do not share dropout of a part");
  p = causal_groups(Operation::backward);
  p.bias = {1, 4, 23, 1};
  p.bias_gradient = true;
  expect_refusal<Unsupported>([&] { World(p, {}); }, "ranks do not share the gradient of a bias that is one word");
  p = causal_groups(Operation::scores);
  expect_refusal<Unsupported>([&] { World(p, {}); }, "ranks do not share operation scores");
  p = causal_groups(Operation::forward);
  expect_refusal<InvalidProblem>([&] { World(p, {.head_groups = 3}); }, "head_groups = 3 for 4 query heads");
  expect_refusal<InvalidProblem>([&] { World(p, {.grid_rows = 2, .grid_cols = 2, .transfer = ranks::Transfer::ring}); },
                                 "a ring of 2 x 2 ranks");
  expect_refusal<InvalidProblem>([&] { World(p, {.ownership = ranks::Ownership::documents}); }, "give cu_seqlens_q");
  expect_refusal<InvalidProblem>([&] { World(p, {.block = 3}); }, "contiguous rows have no blocks");
}

/// A transport whose other ranks never answer.
class Silent final : public ranks::Transport {
 public:
  int rank() const override { return 1; }
  int ranks() const override { return 3; }
  std::unique_ptr<Pending> send(int, int, std::span<const std::byte>) override { return std::make_unique<Never>(); }
  std::unique_ptr<Pending> receive(int, int, std::span<std::byte>) override { return std::make_unique<Never>(); }
  void give_up(std::string_view why) override { gave_up = why; }
  std::string gave_up;

 private:
  struct Never final : Pending {
    bool wait(std::chrono::milliseconds) override { return false; }
  };
};

TEST(Ranks, SayWhichRankDoesNotAnswer) {
  const Problem p = causal_groups(Operation::forward);
  const World world(p, {.grid_rows = 3});
  Filled x = filled(p, DType::f32);
  Shared shared(world, x);
  const auto tensors = shared.tensors();
  Silent silent;
  ranks::How how = how_of(DType::f32);
  how.patience = std::chrono::milliseconds(5);
  expect_refusal<Error>([&] { run(world, silent, tensors[1], how); }, "rank 0 has not said within 5 ms");
  how.agree = false;
  expect_refusal<Error>([&] { run(world, silent, tensors[1], how); }, "of inputs from rank 0, is not done after 5 ms");
  EXPECT_NE(silent.gave_up.find("is not done"), std::string::npos);
}

TEST(RanksOverlap, IsTheShareOfWhatCouldBeHidden) {
  using std::chrono::milliseconds;
  const auto overlap = [](int took, int waited, int alone) {
    ranks::Ran ran, messages;
    ran.took = milliseconds(took);
    ran.waited = milliseconds(waited);
    messages.waited = milliseconds(alone);
    return overlap_of(ran, messages).value_or(-1);
  };
  EXPECT_EQ(overlap(100, 0, 20), 1);
  EXPECT_EQ(overlap(120, 20, 20), 0);
  EXPECT_EQ(overlap(104, 4, 20), 0.8);
  EXPECT_EQ(overlap(50, 40, 50), 1);  // 10 of work hide 10 of 50
  EXPECT_EQ(overlap(200, 100, 20), 0);
  EXPECT_EQ(overlap(100, 0, 0), -1);  // there is nothing to hide
  EXPECT_EQ(overlap(100, 1, 1), 0);
}

}  // namespace
}  // namespace redblue::test::of_ranks
