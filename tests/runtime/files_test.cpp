#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "redblue/runtime/files/backend.hpp"
#include "runtime/in_file.hpp"
#include "runtime/plans.hpp"
#include "runtime/problems.hpp"
#include "support/cases.hpp"

/// Plans over files against plans in memory: the same bits, and as many bytes as words say.
namespace redblue::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Small ones, so that even small problems fill them.
constexpr machine::FileBuffers kSmall{.request = 4096, .read = 32768, .write = 32768};

/// The bytes of the words that a schedule moves: outputs that it revisits are held in the compute type.
Words bytes_of(const plan::Plan& plan, const Io& io, Filled& filled, DType compute) {
  const auto width = [&](std::size_t i, bool rewrites) -> index_t {
    const auto a = static_cast<SlowArray>(i);
    if (!filled.arrays.contains(a)) return static_cast<index_t>(size_of(compute));
    const bool held =
        std::ranges::count(outputs_of(filled.p), a) > 0 && (rewrites || a == SlowArray::lse || is_of_modifiers(a));
    return static_cast<index_t>(size_of(held ? compute : filled.arrays.at(a).tensor().dtype));
  };
  Words bytes;
  for (std::size_t i = 0; i < kSlowArrays; ++i)
    bytes += (io.reads[i] + io.writes[i]) * width(i, plan.row().algorithm->traits.rewrites_outputs);
  return bytes;
}

/// Runs a plan in memory and over files, and compares all that they leave behind.
void expect_same(const plan::Plan& plan, DType dtype, Strides strides, FilesOptions files = {.buffers = kSmall}) {
  SCOPED_TRACE(text_of(plan) + ", " + std::string(name_of(dtype)) + ", " + std::string(name_of(strides)));
  RunOptions options;
  options.compute = dtype == DType::f64 ? DType::f64 : DType::f32;
  options.threads = 1;
  Filled in_memory(plan.problem, dtype, strides), filled(plan.problem, dtype, strides);
  const InFile in_file(filled, files.cache);
  const Measured here = run(plan, in_memory.tensors(), options);
  FilesReport report;
  files.report = [&](const FilesReport& r) { report = r; };
  files.workspace_directory = quick_directory();
  const auto backend = files_backend(in_file.map, files);
  options.backend = backend.get();
  const Measured there = run(plan, filled.tensors(), options);
  EXPECT_EQ(there.io, here.io);
  EXPECT_EQ(there.peak, here.peak);
  EXPECT_EQ(there.converted_words, here.converted_words);
  EXPECT_EQ(Words(report.read) + report.written, bytes_of(plan, there.io, filled, options.compute));
  EXPECT_GE(report.reads.moved, report.reads.transfers);
  in_file.read_back(filled);
  for (const auto& [a, array] : filled.arrays)
    EXPECT_TRUE(array.memory() == in_memory.arrays.at(a).memory()) << name_of(a);
}

Problem problem_like(Operation op, Problem p) {
  p.op = op;
  return p;
}

/// Every engine in turn, with and without the page cache.
FilesOptions some_options() {
  static int round = 0;
  ++round;
  FilesOptions options{.buffers = kSmall};
  options.engine.kind = round % 2 == 0 ? file::io::EngineKind::best : file::io::EngineKind::threads;
  options.cache = round % 4 < 2 ? file::io::PageCache::used : file::io::PageCache::bypassed_if_possible;
  return options;
}

const Problem kSmallProblem{.n_q = 33, .n_k = 41, .d = 8, .d_v = 6};

TEST(Files, EveryForwardScheduleGivesTheSameBitsAsInMemory) {
  for (const plan::Plan& plan : plans_in_turn(with_lse(kSmallProblem)))
    expect_same(plan, DType::f32, Strides::bhsd, some_options());
}

TEST(Files, EveryBackwardScheduleGivesTheSameBitsAsInMemory) {
  for (const plan::Plan& plan : plans_in_turn(problem_like(Operation::backward, kSmallProblem)))
    expect_same(plan, DType::f32, Strides::bhsd, some_options());
}

TEST(Files, EveryOtherScheduleGivesTheSameBitsAsInMemory) {
  for (const OperationFacts& facts : kOperations) {
    const Operation op = facts.operation;
    if (op == Operation::forward || op == Operation::backward || op == Operation::merge) continue;
    Problem p = problem_like(op, {.n_q = 9, .n_k = 9, .d = 5, .d_v = 5});
    if (op == Operation::backward_w) p.d_in = 5;
    for (const plan::Plan& plan : plans_in_turn(p))
      if (plan.options.M.to_index() % 2 == 0) expect_same(plan, DType::f32, Strides::bhsd, some_options());
  }
}

/// Plans in turn, each on another type with other strides.
TEST(Files, AnyTypesAndStridesGiveTheSameBitsAsInMemory) {
  const Problem heads = with_heads({.n_q = 7, .n_k = 9, .d = 4, .d_v = 3}, 1, 4, 2);
  constexpr std::array kTypes{DType::f32, DType::f16, DType::bf16, DType::f64};
  std::size_t round = 0;
  for (const Problem& p :
       {with_lse(heads), problem_like(Operation::backward, causal(heads)), with_lse(modified(heads))})
    for (const plan::Plan& plan : plans_in_turn(p)) {
      expect_same(plan, kTypes[round % 4], kAllStrides[round / 4 % 4], some_options());
      ++round;
    }
}

/// A plan that reads blocks it has written before, and how many transfers of each kind its run makes.
plan::Plan revisiting() {
  return plan::make_plan(with_lse({.n_q = 40, .n_k = 40, .d = 8, .d_v = 8}), {.M = 300, .schedule = "key_outer"});
}

TEST(Files, TransfersThatComeShortGoOn) {
  FilesOptions options{.buffers = kSmall};
  options.engine.fault = [](file::io::Request::Kind, index_t number) {
    return number % 3 == 0 ? file::io::Fault{.errno_value = EINTR} : file::io::Fault{.at_most = 64};
  };
  options.cache = file::io::PageCache::used;  // direct transfers are of whole pages
  expect_same(revisiting(), DType::f32, Strides::bhsd, options);
}

TEST(Files, AnyTransferThatFailsIsAnError) {
  const plan::Plan plan = revisiting();
  for (const auto kind : {file::io::Request::Kind::read, file::io::Request::Kind::write})
    for (const index_t nth : {0, 1, 5})
      for (const int error : {EIO, ENOSPC, 0}) {
        if (error == 0 && kind == file::io::Request::Kind::write) continue;  // no file ends while it is written
        Filled filled(plan.problem, DType::f32, Strides::bhsd);
        const InFile in_file(filled, file::io::PageCache::used);
        FilesOptions options{.buffers = kSmall};
        options.engine.fault = [&](file::io::Request::Kind k, index_t number) {
          if (k != kind || number != nth) return file::io::Fault{};
          return error != 0 ? file::io::Fault{.errno_value = error} : file::io::Fault{.at_most = 0};
        };
        const auto backend = files_backend(in_file.map, options);
        RunOptions run_options;
        run_options.backend = backend.get();
        try {
          run(plan, filled.tensors(), run_options);
          ADD_FAILURE() << "no error";
        } catch (const IoError& e) {
          EXPECT_EQ(e.errno_value, error);
          EXPECT_THAT(e.what(), HasSubstr(error == 0 ? "something has truncated it" : " bytes of '"));
        }
      }
}

TEST(Files, WhatCannotBeHonouredIsRefusedByName) {
  const plan::Plan plan = revisiting();
  Filled filled(plan.problem, DType::f32, Strides::bhsd);
  const auto backend = files_backend({});
  const auto refusal = [&](const auto& change) -> std::string {
    RunOptions options;
    options.backend = backend.get();
    change(options);
    try {
      run(plan, filled.tensors(), options);
    } catch (const Unsupported& e) {
      return e.what();
    }
    return "";
  };
  std::vector<std::byte> memory(100);
  EXPECT_THAT(refusal([](RunOptions& o) { o.threads = 2; }), HasSubstr("threads = 2 over files"));
  EXPECT_THAT(refusal([&](RunOptions& o) { o.memory = memory; }), HasSubstr("RunOptions::memory over files"));
  FilesOptions small;
  small.buffers.read = 1 << 20;
  const auto cannot = files_backend({}, small);
  EXPECT_THROW(run(plan, filled.tensors(), {.backend = cannot.get()}), InvalidProblem);
}

TEST(Files, ArraysInMemoryStayThere) {
  const plan::Plan plan = revisiting();
  Filled here(plan.problem, DType::f32, Strides::padded), there = here;
  FilesReport report;
  const auto backend = files_backend({}, {.report = [&](const FilesReport& r) { report = r; }});
  run(plan, here.tensors());
  run(plan, there.tensors(), {.backend = backend.get()});
  EXPECT_EQ(here.outputs(), there.outputs());
  EXPECT_EQ(report.read, 0);
  EXPECT_EQ(report.reads.transfers + report.writes.transfers, 0);
}

TEST(Files, NeighbouringBlocksShareRequests) {
  const plan::Plan plan =
      plan::make_plan({.n_q = 512, .n_k = 512, .d = 16, .d_v = 16}, {.M = 2000, .schedule = "flash"});
  Filled filled(plan.problem, DType::f32, Strides::bhsd);
  const InFile in_file(filled, file::io::PageCache::bypassed_if_possible);
  FilesReport report;
  const auto backend = files_backend(in_file.map, {.report = [&](const FilesReport& r) { report = r; }});
  const Measured m = run(plan, filled.tensors(), {.backend = backend.get()});
  EXPECT_EQ(Words(report.read), m.io.total_reads() * 4);
  EXPECT_LT(report.reads.transfers, 300);  // of some ten thousand blocks, in passes over 64 KiB of K and V
  EXPECT_EQ(Words(report.written), m.io.total_writes() * 4);
  EXPECT_EQ(report.writes.asked, report.written);
  EXPECT_LE(report.writes.transfers, 2);  // of some ten blocks, in 32 KiB of O; the page at the end of the file is one
}

}  // namespace
}  // namespace redblue::test
