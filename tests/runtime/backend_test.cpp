#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "redblue/attention.hpp"

/// A backend from outside of the library, through the public face alone.
namespace redblue::test {
namespace {

/// Writes down what it is asked, holds no f64, says that it takes a page more than RAM, and hands the rest on to RAM.
class Recording : public Backend {
 public:
  struct Heard : Memo {
    std::unique_ptr<Memo> of_ram = ram_backend().new_memo();
    int runs = 0;
  };
  static constexpr index_t kPage = 4096;

  std::string_view name() const override { return "recording"; }
  std::unique_ptr<Memo> new_memo() const override {
    heard.emplace_back("new_memo");
    return std::make_unique<Heard>();
  }
  void require(const Problem& problem, const Tensors& tensors, const RunOptions& options) const override {
    if (tensors[SlowArray::Q].dtype == DType::f64) throw Unsupported("recording: q is f64, and it holds f32");
    ram_backend().require(problem, tensors, options);
  }
  Words bytes(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, Memo& memo,
              Walk walk) const override {
    heard.emplace_back(walk == Walk::whole ? "bytes" : "some bytes");
    return ram_backend().bytes(plan, tensors, options, *static_cast<Heard&>(memo).of_ram, walk) + kPage;
  }
  Measured run(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, Memo& memo) const override {
    auto& mine = static_cast<Heard&>(memo);
    heard.push_back("run " + std::string(plan.row().schedule) + ' ' + std::to_string(++mine.runs));
    return ram_backend().run(plan, tensors, options, *mine.of_ram);
  }
  Measured count(const plan::Plan& plan, const std::function<void()>& now_and_then) const override {
    heard.push_back("count " + std::string(plan.row().schedule));
    return Backend::count(plan, now_and_then);
  }

  mutable std::vector<std::string> heard;
};

constexpr index_t kRows = 24, kFeatures = 8;
Problem square() { return {.n_q = kRows, .n_k = kRows, .d = kFeatures, .d_v = kFeatures}; }

struct Squares {
  std::vector<float> q = std::vector<float>(kRows * kFeatures), o = q;
  Squares() {
    for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(i % 7) - 3;
  }
  Tensors tensors() {
    const std::array<index_t, 4> shape{1, 1, kRows, kFeatures};
    return tensors_of(Inputs{{q, shape}, {q, shape}, {q, shape}}, Outputs{{o, shape}, {}});
  }
};

using Heard = std::vector<std::string>;

TEST(Backend, IsAskedWhatARunAsksRamAndGivesTheSameBits) {
  const plan::Plan plan = plan::make_plan(square(), {.M = 300, .schedule = "flash"});
  Squares mine, of_ram;
  const Recording recording;
  const RunOptions options{.backend = &recording};
  RunMemo memo;
  const Measured there = run(plan, mine.tensors(), options, memo), again = run(plan, mine.tensors(), options, memo),
                 here = run(plan, of_ram.tensors());
  EXPECT_EQ(recording.heard, (Heard{"new_memo", "run flash 1", "run flash 2"})) << "it remembers from run to run";
  EXPECT_EQ(mine.o, of_ram.o);
  EXPECT_EQ(there.io, here.io);
  EXPECT_EQ(again.io, here.io);
}

TEST(Backend, AtTheAddressOfAnotherDoesNotTakeOverItsMemo) {
  const plan::Plan plan = plan::make_plan(square(), {.M = 300, .schedule = "flash"});
  Squares arrays;
  RunMemo memo;
  std::optional<Recording> place;
  for (int i = 0; i < 2; ++i) {
    const Recording& recording = place.emplace();
    run(plan, arrays.tensors(), {.backend = &recording}, memo);
    EXPECT_EQ(recording.heard, (Heard{"new_memo", "run flash 1"}));
  }
}

TEST(Backend, SaysWhatItTakes) {
  const plan::Plan plan = plan::make_plan(square(), {.M = 300, .schedule = "flash"});
  Squares arrays;
  const Recording recording;
  const RunOptions options{.threads = 1, .backend = &recording}, in_ram{.threads = 1};
  const Words of_ram = run_bytes(plan, arrays.tensors(), in_ram);
  EXPECT_EQ(run_bytes(plan, arrays.tensors(), options), of_ram + Recording::kPage);
  // A plan that may take what RAM takes is none for a backend that takes more.
  const auto capped = [&](const RunOptions& run) {
    return plan::make_plan(square(), {.M = 300, .schedule = "flash", .cap = memory_cap(of_ram, arrays.tensors(), run)});
  };
  EXPECT_NO_THROW(capped(in_ram));
  EXPECT_THROW(capped(options), Error);
  EXPECT_EQ(recording.heard.back(), "some bytes");
}

TEST(Backend, SaysWhatItDoesNotHold) {
  const plan::Plan plan = plan::make_plan(square(), {.M = 300});
  std::vector<double> q(kRows * kFeatures), o(q.size());
  const std::array<index_t, 4> shape{1, 1, kRows, kFeatures};
  const Recording recording;
  const RunOptions options{.compute = DType::f64, .backend = &recording};
  const Tensors tensors = tensors_of(Inputs{{q, shape}, {q, shape}, {q, shape}}, Outputs{{o, shape}, {}});
  EXPECT_THROW(run(plan, tensors, options), Unsupported);
  EXPECT_THROW(static_cast<void>(run_bytes(plan, tensors, options)), Unsupported);
  EXPECT_TRUE(recording.heard.empty());
}

TEST(Backend, Counts) {
  Problem p = square();
  p.op = Operation::backward;
  p.forward_given = false;
  const plan::Plan plan = plan::make_plan(p, {.M = 600});
  const Recording recording;
  EXPECT_EQ(count(plan, {}, &recording).io, count(plan).io);
  const std::string forward(plan.forward->row().schedule), backward(plan.row().schedule);
  EXPECT_EQ(recording.heard, (Heard{"count " + backward, "count " + forward}));
}

}  // namespace
}  // namespace redblue::test
