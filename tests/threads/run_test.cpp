#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "redblue/language/error.hpp"
#include "runtime/filled.hpp"
#include "runtime/plans.hpp"
#include "runtime/problems.hpp"
#include "support/cases.hpp"
#include "support/generators.hpp"
#include "threads/pools.hpp"

/// Runs with several threads: the same bits and the same counts as with one.
namespace redblue::test {
namespace {

constexpr Operation kOperations[] = {Operation::forward,    Operation::backward,   Operation::forward_x,
                                     Operation::gradient_x, Operation::backward_x, Operation::backward_w,
                                     Operation::scores,     Operation::weights};

Problem of(Operation op, Problem p) {
  p.op = op;
  if (op == Operation::backward_w) p.d_in = p.d + 1;
  p.lse_required = is_forward(op);
  return p;
}

void expect_the_same_for_any_number_of_threads(const std::vector<plan::Plan>& plans, DType dtype, DType compute) {
  static const auto pool = make_pool(8);
  for (const plan::Plan& plan : plans) {
    SCOPED_TRACE(text_of(plan));
    const Problem& p = plan.problem;
    Filled alone(p, dtype, Strides::bshd);
    RunOptions options;
    options.compute = compute;
    options.pool = pool.get();
    options.progress = [](double) { std::this_thread::yield(); };  // all get a share, however few CPUs there are
    options.threads = 1;
    const Measured one = run(plan, alone.tensors(), options);
    EXPECT_EQ(one.io, plan.io());
    EXPECT_EQ(one.threads, 1);
    EXPECT_EQ(one.most_per_thread, one.io.total());
    for (const int threads : cases<int>({2, 3, 5, 8})) {
      Filled together(p, dtype, Strides::bshd);
      options.threads = threads;
      const Measured m = run(plan, together.tensors(), options);
      for (const SlowArray a : outputs_of(p))
        EXPECT_EQ(together.arrays.at(a).memory(), alone.arrays.at(a).memory())
            << tensor_name(a) << " with " << threads << " threads";
      EXPECT_EQ(m.io, one.io);
      EXPECT_EQ(m.peak, one.peak);
      EXPECT_EQ(m.flops, one.flops);
      EXPECT_EQ(m.threads, threads);
      EXPECT_LE(m.most_per_thread, m.io.total());
      EXPECT_GE(m.most_per_thread * threads, m.io.total());
    }
  }
}

TEST(ThreadsRun, GiveTheSameBitsAndCountsOnOneHead) {
  for (const Operation op : kOperations) {
    Problem packed = problem(40, 33, 4, 4);  // the third sequence has no keys
    packed.cu_seqlens_q = {0, 9, 25, 31, 40};
    packed.cu_seqlens_k = {0, 7, 25, 25, 33};
    for (const Problem& shape :
         in_turn<Problem>({packed, problem(33, 41, 5, 3), causal(problem(37, 37, 4, 4)),
                           windowed(problem(40, 37, 4, 4), 9, 3, 5), patterned(problem(40, 37, 4, 4), 3)}))
      expect_the_same_for_any_number_of_threads(plans_in_turn(of(op, shape)), DType::f32, DType::f32);
  }
}

/// Blocks of one and of two panels of the widest vectors, a ragged one at the end, keys in several steps.
TEST(ThreadsRun, GiveTheSameBitsAndCountsInPanels) {
  const schedule::Multiples panels{48, 16, 1};
  for (const Operation op : kOperations)
    for (const Problem& shape : in_turn<Problem>(
             {problem(110, 70, 8, 12), causal(problem(110, 110, 8, 8)), windowed(problem(110, 100, 8, 8), 40, 1)}))
      expect_the_same_for_any_number_of_threads(plans_in_turn(of(op, shape), panels), DType::f32, DType::f32);
  for (const Problem& shape :
       cases<Problem>({problem(110, 70, 32, 32), causal(problem(110, 110, 32, 16)),
                       windowed(problem(110, 100, 32, 16), 40, 1), with_heads(problem(21, 35, 6, 5), 2, 4, 2)}))
    expect_the_same_for_any_number_of_threads(plans_in_turn(of(Operation::forward, shape), panels), DType::bf16,
                                              DType::bf16);
}

TEST(ThreadsRun, GiveTheSameBitsAndCountsOnManyHeads) {
  for (const Operation op : kOperations)
    for (const auto& [shape, type] :
         in_turn<std::pair<Problem, DType>>({{with_heads(problem(13, 11, 4, 3), 2, 3, 3), DType::f32},
                                             {with_heads(problem(9, 9, 3, 3), 4, 3, 3), DType::f64}}))
      expect_the_same_for_any_number_of_threads(plans_in_turn(of(op, shape)), type, type);
  for (const Operation op : {Operation::forward, Operation::backward})
    expect_the_same_for_any_number_of_threads(
        plans_of_every_schedule(of(op, with_heads(problem(13, 11, 4, 3), 1, 6, 2))), DType::f32, DType::f32);
}

TEST(ThreadsRun, GiveTheSameBitsWhereElementTypesAreConverted) {
  for (const Operation op : kOperations)
    expect_the_same_for_any_number_of_threads(
        plans_of_every_schedule(of(op, with_heads(problem(13, 11, 4, 3), 1, 2, 2))), DType::f16, DType::f32);
}

TEST(ThreadsRun, GiveTheSameBitsWithTheForwardPassBefore) {
  for (const Operation op : {Operation::backward, Operation::gradient_x}) {
    Problem p = of(op, with_heads(problem(21, 17, 4, 3), 1, 2, 2));
    p.forward_given = false;
    plan::Options o;
    o.M = 200;
    const plan::Plan plan = plan::make_plan(p, o);
    const auto pool = make_pool(4);
    RunOptions options;
    options.pool = pool.get();
    std::vector<std::vector<unsigned char>> seen;
    for (const int threads : {1, 4}) {
      Filled memory(p, DType::f32, Strides::bshd);
      options.threads = threads;
      const Measured m = run(plan, memory.tensors(), options);
      EXPECT_EQ(m.io, plan.io());
      EXPECT_EQ(m.threads, threads);
      for (const SlowArray a : outputs_of(p)) seen.push_back(memory.arrays.at(a).memory());
    }
    for (std::size_t i = 0; i < seen.size() / 2; ++i) EXPECT_EQ(seen[i], seen[i + seen.size() / 2]);
  }
}

/// A problem that takes a while, and what comes out.
struct Job {
  Problem p = of(Operation::backward, with_heads(problem(40, 40, 4, 4), 2, 2, 2));
  plan::Plan plan = plan::make_plan(p, {.M = 150});

  std::vector<unsigned char> dq(ThreadPool* pool, int threads, const std::function<void(double)>& progress = {}) const {
    Filled memory(p, DType::f32, Strides::bshd);
    RunOptions options;
    options.pool = pool;
    options.threads = threads;
    options.progress = progress;
    EXPECT_EQ(run(plan, memory.tensors(), options).io, plan.io());
    return memory.arrays.at(SlowArray::dQ).memory();
  }
};

TEST(ThreadsRun, TakeAnyPool) {
  const Job job;
  const auto expected = job.dq(nullptr, 1);
  InOrder in_order;
  InReverse in_reverse;
  AllAtOnce all_at_once;
  for (ThreadPool* pool : {static_cast<ThreadPool*>(&in_order), static_cast<ThreadPool*>(&in_reverse),
                           static_cast<ThreadPool*>(&all_at_once), &default_pool()}) {
    EXPECT_EQ(job.dq(pool, 4), expected);
    EXPECT_EQ(job.dq(pool, 0), expected);
  }
}

TEST(ThreadsRun, GoOnSideBySideAndInsideAPool) {
  const Job job;
  const auto expected = job.dq(nullptr, 1);
  const auto pool = make_pool(3);
  std::thread other([&] {
    for (int i = 0; i < 5; ++i) EXPECT_EQ(job.dq(pool.get(), 3), expected);
  });
  for (int i = 0; i < 5; ++i) EXPECT_EQ(job.dq(pool.get(), 3), expected);
  other.join();
  pool->run(3, [&](int) { EXPECT_EQ(job.dq(pool.get(), 3), expected); });
}

TEST(ThreadsRun, TellProgressFromOneThreadAtATimeUpToTheEnd) {
  const Job job;
  const auto pool = make_pool(4);
  std::vector<double> shares;  // no lock
  job.dq(pool.get(), 4, [&](double share) { shares.push_back(share); });
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_EQ(shares.back(), 1);
}

TEST(ThreadsRun, EndWithTheExceptionOfAnItem) {
  const Job job;
  const auto pool = make_pool(4);
  for (const int threads : {1, 4})
    EXPECT_THROW(job.dq(pool.get(), threads, [](double) { throw std::runtime_error("enough"); }), std::runtime_error);
  EXPECT_EQ(job.dq(pool.get(), 4), job.dq(nullptr, 1));  // and leave the pool as it was
}

TEST(ThreadsRun, RefuseANumberOfThreadsThatIsNone) {
  const Job job;
  EXPECT_THROW(job.dq(nullptr, -1), InvalidProblem);
}

TEST(ThreadsRun, AreNoMoreThanThePoolHasAndTheWorkIsWorth) {
  const Job job;
  const auto pool = make_pool(3);
  Filled memory(job.p, DType::f32, Strides::bshd);
  RunOptions options;
  options.pool = pool.get();
  options.threads = 100;
  EXPECT_EQ(run(job.plan, memory.tensors(), options).threads, 3);
  options.threads = 0;
  EXPECT_EQ(run(plan::make_plan(of(Operation::forward, problem(4, 4, 4, 4)), {.M = 100}),
                Filled(of(Operation::forward, problem(4, 4, 4, 4)), DType::f32, Strides::bshd).tensors(), options)
                .threads,
            1);
}

}  // namespace
}  // namespace redblue::test
