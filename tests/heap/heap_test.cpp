#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <string_view>

#include "redblue/runtime/backend.hpp"
#include "runtime/arrays.hpp"
#include "runtime/plans.hpp"
#include "support/generators.hpp"

/// What a run takes from the heap: nothing but bookkeeping beside the memory it is given, and that memory where it is
/// given none.

namespace {

std::atomic<std::int64_t> in_use{0}, most_in_use{0}, taken{0};

void* counted(void* p) {
  if (p == nullptr) throw std::bad_alloc();
  ++taken;
  const std::int64_t now = in_use += static_cast<std::int64_t>(malloc_usable_size(p));
  std::int64_t most = most_in_use;
  while (now > most && !most_in_use.compare_exchange_weak(most, now)) {
  }
  return p;
}
void release(void* p) noexcept {
  in_use -= static_cast<std::int64_t>(malloc_usable_size(p));
  std::free(p);
}

}  // namespace

void* operator new(std::size_t n) { return counted(std::malloc(std::max<std::size_t>(n, 1))); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return operator new(n); }
void* operator new(std::size_t n, std::align_val_t a) {
  const auto align = static_cast<std::size_t>(a);
  return counted(std::aligned_alloc(align, (n + align) / align * align));
}
void operator delete(void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }
void operator delete(void* p, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { release(p); }

namespace redblue::test {
namespace {

/// The most that f() has in use at a time, beyond what was before.
template <class F>
std::int64_t heap_of(const F& f) {
  const std::int64_t before = in_use;
  most_in_use = before;
  f();
  return most_in_use - before;
}

Problem heads(Problem p, Operation op, index_t batch) {
  p.op = op;
  p.batch = batch;
  p.heads = 4;
  p.lse_required = op == Operation::forward;
  return p;
}

TEST(Heap, ARunTakesWhatItSaysAndBookkeeping) {
  constexpr std::int64_t kOfARun = 10 << 10, kOfAWorker = 14 << 10;  // docs/machines.md
  const auto pool = make_pool(8);
  for (const Operation op : {Operation::forward, Operation::backward})
    for (const Problem& p : {heads(problem(10, 12, 4, 4), op, 8), heads(problem(60, 70, 8, 8), op, 1)})
      for (const plan::Plan& plan : plans_of_every_schedule(p)) {
        Tensors tensors = contiguous_tensors(p, DType::f32);
        std::vector<Array> arrays;
        for (const auto& list : {inputs_of(p), outputs_of(p)})
          for (const SlowArray a : list)
            tensors[a] = arrays.emplace_back(DType::f32, shape_of(p, a), Strides::bhsd).tensor();
        for (const int threads : {1, 8}) {
          SCOPED_TRACE(text_of(plan) + ", threads = " + std::to_string(threads));
          RunOptions options;
          options.pool = pool.get();
          options.threads = threads;
          const std::int64_t bytes = run_bytes(plan, tensors, options).to_index();
          const std::int64_t own = heap_of([&] { run(plan, tensors, options); });
          EXPECT_LE(own, bytes + kOfARun + kOfAWorker * threads);
          std::vector<std::byte> memory(static_cast<std::size_t>(bytes));
          options.memory = memory;
          EXPECT_LE(heap_of([&] { run(plan, tensors, options); }), kOfARun + kOfAWorker * threads);
        }
      }
}

/// With the schedules that plans of least time have for small problems. Those that keep tiles in lists take these.
TEST(Heap, ARunThatCameBeforeTakesNothing) {
  constexpr std::array<std::string_view, 4> kSchedules{"flash", "fused_query_outer", "fused_key_outer", "two_pass"};
  const auto pool = make_pool(1);
  for (const Operation op : {Operation::forward, Operation::backward}) {
    const Problem p = heads(problem(20, 24, 8, 8), op, 2);
    for (const plan::Plan& plan : plans_of_every_schedule(p)) {
      if (std::ranges::find(kSchedules, plan.row().schedule) == kSchedules.end()) continue;
      Tensors tensors = contiguous_tensors(p, DType::f32);
      std::vector<Array> arrays;
      for (const auto& list : {inputs_of(p), outputs_of(p)})
        for (const SlowArray a : list)
          tensors[a] = arrays.emplace_back(DType::f32, shape_of(p, a), Strides::bhsd).tensor();
      RunOptions options;
      options.pool = pool.get();
      RunMemo memo;
      for (int i = 0; i < 2; ++i) run(plan, tensors, options, memo);
      const std::int64_t before = taken;
      run(plan, tensors, options, memo);
      EXPECT_EQ(taken - before, 0) << text_of(plan);
    }
  }
}

/// No more than docs/machines.md says.
TEST(Heap, AThreadKeepsLittleOfALargeRun) {
  constexpr std::int64_t kKept = (256 << 10) + (32 << 10);
  const Problem p = heads(problem(600, 600, 64, 64), Operation::forward, 1);
  const plan::Plan plan = plan::make_plan(p, {.M = 200'000});
  Tensors tensors = contiguous_tensors(p, DType::f32);
  std::vector<Array> arrays;
  for (const auto& list : {inputs_of(p), outputs_of(p)})
    for (const SlowArray a : list) tensors[a] = arrays.emplace_back(DType::f32, shape_of(p, a), Strides::bhsd).tensor();
  const std::int64_t before = in_use;
  const std::int64_t most = heap_of([&] { run(plan, tensors, {.threads = 1}); });
  EXPECT_GT(most, kKept);
  EXPECT_LE(in_use - before, kKept);
}

}  // namespace
}  // namespace redblue::test
