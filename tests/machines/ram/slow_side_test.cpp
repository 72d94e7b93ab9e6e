#include <gtest/gtest.h>

#include <cmath>

#include "redblue/machines/ram/ram.hpp"
#include "redblue/schedules/backward/fused_key_outer.hpp"
#include "redblue/schedules/forward/flash.hpp"

/// Ram on slow memory of which nothing can be viewed, as where blocks come from a file or from another process.
namespace redblue::test {
namespace {

using machine::CallerMemory;
using machine::Ram;
using machine::Rows16;
using machine::SlowMemory;
using machine::Storage;

class Elsewhere {
 public:
  using Arrays = SlowMemory;
  Elsewhere(const SlowMemory& arrays, const kernel::Implementations<float>& implementations)
      : memory_(arrays, implementations) {}
  static bool can_view(const Block&) { return false; }
  static View<float> view(const Block&) { throw std::logic_error("there is nothing to view"); }
  static std::optional<DType> words16(const Block&) { return std::nullopt; }
  static Rows16 rows16(const Block&) { throw std::logic_error("there is nothing to view"); }
  static bool is_int8(const Block&) { return false; }
  static machine::Rows8 rows8(const Block&) { throw std::logic_error("there is nothing to view"); }
  static void scales(const Block&, float*) { throw std::logic_error("there is nothing to view"); }
  void fetch(const Block& b, float* to, index_t ld) const { memory_.fetch(b, to, ld); }
  void put(const Block& b, const View<const float>& from) const { memory_.put(b, from); }
  void add(const Block& b, const View<const float>& from) const { memory_.add(b, from); }

 private:
  CallerMemory<float> memory_;
};

constexpr index_t kQueries = 37, kKeys = 53, kD = 9, kDv = 6;

/// Arrays of one problem, the inputs filled.
class Data {
 public:
  Data() {
    fill(SlowArray::Q, {kQueries, kD});
    fill(SlowArray::K, {kKeys, kD});
    fill(SlowArray::V, {kKeys, kDv});
    fill(SlowArray::dO, {kQueries, kDv});
    for (const SlowArray a : {SlowArray::O, SlowArray::lse, SlowArray::D, SlowArray::dQ, SlowArray::dK, SlowArray::dV})
      add(a, a == SlowArray::O    ? Shape{kQueries, kDv}
             : a == SlowArray::dQ ? Shape{kQueries, kD}
             : a == SlowArray::dK ? Shape{kKeys, kD}
             : a == SlowArray::dV ? Shape{kKeys, kDv}
                                  : Shape{kQueries, 1});
  }
  const SlowMemory& slow() const { return slow_; }
  const std::vector<float>& of(SlowArray a) const { return words_[index_of(a)]; }

 private:
  void add(SlowArray a, Shape s) {
    words_[index_of(a)].resize(static_cast<std::size_t>(s.words()));
    slow_[index_of(a)] = Storage::matrix(words_[index_of(a)].data(), s);
  }
  void fill(SlowArray a, Shape s) {
    add(a, s);
    float x = static_cast<float>(index_of(a));
    for (float& w : words_[index_of(a)]) w = std::sin(x += 1);
  }
  std::array<std::vector<float>, kSlowArrays> words_;
  SlowMemory slow_;
};

/// The forward pass, then all gradients.
template <class Machine>
void run_both(Machine& m) {
  const Sizes sizes{kQueries, kKeys, kD, kDv};
  schedule::FlashForward::run(m, schedule::ForwardOperands(sizes, 0.3), {10, 16});
  schedule::FusedKeyOuterBackward::run(m, schedule::BackwardOperands(sizes, 0.3), {16, 10});
}

TEST(SlowSide, BlocksThatCannotBeViewedPassThroughBuffers) {
  Data viewed, copied;
  Ram<float> here(5000, viewed.slow());
  run_both(here);
  EXPECT_EQ(here.staging_words(), 0);
  Ram<float, Elsewhere> elsewhere(5000, copied.slow());
  run_both(elsewhere);
  EXPECT_GT(elsewhere.staging_words(), 0);
  for (const SlowArray a : {SlowArray::O, SlowArray::lse, SlowArray::dQ, SlowArray::dK, SlowArray::dV}) {
    EXPECT_EQ(viewed.of(a), copied.of(a)) << name_of(a);
    EXPECT_NE(viewed.of(a), Data().of(a)) << name_of(a);
  }
}

}  // namespace
}  // namespace redblue::test
