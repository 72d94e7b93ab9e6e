#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "redblue/kernels/gradient.hpp"
#include "redblue/kernels/materialised.hpp"
#include "redblue/machines/any.hpp"
#include "redblue/machines/checked.hpp"
#include "redblue/machines/counting.hpp"
#include "redblue/machines/observed.hpp"
#include "redblue/machines/outline.hpp"
#include "redblue/machines/ram/ram.hpp"
#include "redblue/machines/ram/sizing.hpp"
#include "redblue/machines/resumable.hpp"
#include "redblue/machines/trace.hpp"
#include "redblue/machines/weighed.hpp"
#include "redblue/planner/timed.hpp"
#include "redblue/verify/answering.hpp"
#include "redblue/verify/reordered.hpp"
#include "redblue/verify/sabotaged.hpp"

/// What machines that wrap others pass on, and what a machine must have to be one.
namespace redblue::test {
namespace {

/// Writes down the operations and hints that reach it.
class Recorder : public MachineFace<Recorder> {
 public:
  index_t open(SlowArray, Shape, Layout) { return say("open"), depth_++; }
  void close(index_t, SlowArray, Shape) { say("close"), --depth_; }
  void read(const Arg&, const Block&) { say("read"); }
  void write(const Block&, const Arg&) { say("write"); }
  template <class K>
  void run(const K&, std::span<const Arg>) {
    say("run");
  }
  template <class K>
  void modify(const K&, std::span<const Arg>) {
    say("modify");
  }
  void store_hint(index_t depth, const Block& b) { say("store_hint", depth, b.row); }
  void read_hint(const Block& b) { say("read_hint", b.row, b.col); }
  index_t read_index(Question, const Arg&, index_t) { return say("read_index"), 7; }
  template <class Body>
  void each(index_t n, const Body& body) {
    for (index_t i = 0; i < n; ++i) body(*this, i);
  }

  std::vector<std::string> heard;

 private:
  void say(const char* what) { heard.emplace_back(what); }
  void say(const char* what, index_t a, index_t b) {
    heard.push_back(std::string(what) + ' ' + std::to_string(a) + ' ' + std::to_string(b));
  }
  index_t depth_ = 0;
};

constexpr Block kPassed{.array = SlowArray::Q, .row = 5, .col = 2, .shape = {3, 4}};
constexpr Block kPassedBack{.array = SlowArray::O, .row = 1, .col = 0, .shape = {3, 4}};

/// Every primitive and every hint, two rounds of them.
template <class M>
void say_everything(M& m) {
  static_assert(DataMachine<M>);
  m.each(2, [&](M& w, index_t) {
    w.read_hint(kPassed);
    const auto loaded = w.load(kPassed);
    const auto fresh = w.alloc(kPassedBack);
    const auto nowhere = w.alloc(SlowArray::S, {2, 2});  // no room for a block, no hint
    w.compute(kernel::Copy{}, fresh, loaded);
    EXPECT_EQ(decide(w, loaded.part({1, 1}), 9), 7);
    w.store(fresh, kPassedBack);
    w.update(kernel::MergeOutput{}, kPassedBack, loaded.cols(1), loaded.cols(3), loaded);
  });
}

/// What a Recorder hears through the machines that wrap(recorder) puts around it.
template <class Wrap>
std::vector<std::string> heard_through(const Wrap& wrap) {
  Recorder recorder;
  wrap(recorder);
  return recorder.heard;
}

TEST(Passing, EveryOperationAndEveryHintReachesTheMachineBehind) {
  const std::vector<std::string> once{"read_hint 5 2", "open",  "read",   "open",  "store_hint 1 1", "open", "run",
                                      "read_index",    "write", "modify", "close", "close",          "close"};
  std::vector<std::string> all = once;
  all.insert(all.end(), once.begin(), once.end());
  EXPECT_EQ(heard_through([](Recorder& r) { say_everything(r); }), all);
  EXPECT_EQ(heard_through([](Recorder& r) {
              machine::Any any(r);
              say_everything(any);
            }),
            all);
  EXPECT_EQ(heard_through([](Recorder& r) {
              machine::Counted counted(r);
              say_everything(counted);
              EXPECT_EQ(counted.io().reads[index_of(SlowArray::Q)], 24) << "hints cost nothing";
              EXPECT_EQ(counted.io().total(), 24 + 24 + 48);
            }),
            all);
  EXPECT_EQ(heard_through([](Recorder& r) {
              const machine::Observed<Recorder>::Callback nothing;
              machine::Observed observed(r, nothing);
              say_everything(observed);
            }),
            all);
  EXPECT_EQ(heard_through([](Recorder& r) {
              machine::Resumption from_the_start;
              machine::Resumable resumable(r, from_the_start);
              say_everything(resumable);
            }),
            all);
  EXPECT_EQ(heard_through([](Recorder& r) {
              machine::Weighed weighed(r, Residence{});
              say_everything(weighed);
            }),
            all);
  EXPECT_EQ(heard_through([](Recorder& r) {
              machine::Trace trace;
              machine::Traced traced(r, trace);
              say_everything(traced);
            }),
            all);
  EXPECT_EQ(heard_through([](Recorder& r) {
              machine::Referee referee(100);
              referee.input({SlowArray::Q, {8, 6}});
              referee.output({SlowArray::O, {4, 4}});
              machine::Checked checked(r, referee);
              say_everything(checked);
            }),
            all);
  EXPECT_EQ(heard_through([](Recorder& r) {
              claims::Reordered reordered(r, claims::Order::reverse);
              say_everything(reordered);
            }),
            all);
  EXPECT_EQ(heard_through([](Recorder& r) {
              claims::Sabotaged sabotaged(r, claims::Slip::none, 0);
              say_everything(sabotaged);
            }),
            all);
}

/// A machine that has all that one must have.
template <class Self>
struct Whole : MachineFace<Self> {
  static index_t open(SlowArray, Shape, Layout) { return 0; }
  static void close(index_t, SlowArray, Shape) {}
  static void read(const Arg&, const Block&) {}
  static void write(const Block&, const Arg&) {}
  template <class K>
  static void run(const K&, std::span<const Arg>) {}
  template <class K>
  static void modify(const K&, std::span<const Arg>) {}
  template <class Body>
  static void each(index_t, const Body&) {}
};
struct Complete : Whole<Complete> {};
static_assert(Machine<Complete>);
static_assert(!DataMachine<Complete>);
struct NoFace : Whole<Complete> {};
static_assert(!Machine<NoFace>);
// Each of these lacks one.
struct NoOpen : Whole<NoOpen> {
  void open() = delete;
};
static_assert(!Machine<NoOpen>);
struct NoClose : Whole<NoClose> {
  void close() = delete;
};
static_assert(!Machine<NoClose>);
struct NoRead : Whole<NoRead> {
  void read() = delete;
};
static_assert(!Machine<NoRead>);
struct NoWrite : Whole<NoWrite> {
  void write() = delete;
};
static_assert(!Machine<NoWrite>);
struct NoRun : Whole<NoRun> {
  void run() = delete;
};
static_assert(!Machine<NoRun>);
struct NoModify : Whole<NoModify> {
  void modify() = delete;
};
static_assert(!Machine<NoModify>);
struct NoEach : Whole<NoEach> {
  void each() = delete;
};
static_assert(!Machine<NoEach>);
struct NoStoreHint : Whole<NoStoreHint> {
  void store_hint() = delete;
};
static_assert(!Machine<NoStoreHint>);
struct NoReadHint : Whole<NoReadHint> {
  void read_hint() = delete;
};
static_assert(!Machine<NoReadHint>);

// The machines of redblue are whole.
static_assert(DataMachine<machine::Null> && DataMachine<machine::Counting> && DataMachine<machine::Any>);
static_assert(DataMachine<machine::Ram<float>> && DataMachine<machine::Sizing<machine::CallerMemory<float>>>);
static_assert(DataMachine<machine::Outliner> && DataMachine<model::Timed> && DataMachine<claims::Answering>);

}  // namespace
}  // namespace redblue::test
