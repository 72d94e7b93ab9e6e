#include <gtest/gtest.h>

#include <vector>

#include "redblue/kernel/attention.hpp"
#include "redblue/machine/any.hpp"
#include "redblue/machine/counting.hpp"
#include "redblue/machine/observed.hpp"
#include "redblue/machine/ram.hpp"

namespace redblue::test {
namespace {

using machine::Any;
using machine::Counted;
using machine::Null;
using machine::Observed;
using machine::Ram;

constexpr Block kBlock{.array = SlowArray::O, .row = 5, .shape = {3, 4}};

/// Remembers the hints that it gets.
class Aimed : public MachineFace<Aimed> {
 public:
  index_t open(SlowArray array, Shape s, Layout layout) { return null_.open(array, s, layout); }
  void close(index_t depth, SlowArray array, Shape s) { null_.close(depth, array, s); }
  void aim(index_t, const Block& b) { rows.push_back(b.row); }
  void read(const Arg& tile, const Block& b) { null_.read(tile, b); }
  void write(const Block& b, const Arg& tile) { null_.write(b, tile); }
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    null_.run(k, args);
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    null_.modify(k, args);
  }
  template <class Body>
  void each(index_t n, const Body& body) {
    for (index_t i = 0; i < n; ++i) body(*this, i);
  }

  std::vector<index_t> rows;

 private:
  Null null_;
};

TEST(Aim, ReachesTheMachineThroughThoseARunPutsAroundIt) {
  Aimed base;
  Counted<Aimed> counted(base);
  const Observed<Counted<Aimed>>::Callback nothing;
  Observed<Counted<Aimed>> observed(counted, nothing);
  Any any(observed);
  {
    const auto O = any.alloc(kBlock);
  }
  EXPECT_EQ(base.rows, std::vector<index_t>{5});
  {
    const auto O = any.alloc(kBlock.array, kBlock.shape);
  }
  EXPECT_EQ(base.rows.size(), 1U) << "no block, no hint";
}

/// It is a hint: words are written when they are stored.
TEST(Aim, WritesNothing) {
  constexpr Shape kShape{32, 16};
  using Attention = kernel::OnlineAttention;
  std::vector<float> inputs(512, 0.5F), lse(32, 7.0F), out(512, 7.0F);
  const std::vector<float> before = out;
  machine::SlowMemory slow;
  for (const SlowArray a : {SlowArray::Q, SlowArray::K, SlowArray::V})
    slow[index_of(a)] = machine::Storage::matrix(inputs.data(), kShape);
  slow[index_of(SlowArray::O)] = machine::Storage::matrix(out.data(), kShape);
  slow[index_of(SlowArray::lse)] = machine::Storage::matrix(lse.data(), {32, 1});
  const auto all = [](SlowArray a, Shape s) { return Block{.array = a, .shape = s}; };

  Ram<float> ram(10000, slow);
  const auto Q = ram.load(all(SlowArray::Q, kShape), Attention::Q);
  const auto O = ram.alloc(all(SlowArray::O, kShape), Attention::O);
  const auto m = ram.alloc(all(SlowArray::lse, {32, 1})), l = ram.alloc(all(SlowArray::lse, {32, 1}));
  const auto S = ram.alloc(SlowArray::S, {32, 32}, Attention::S);
  const Arg none{};
  ram.compute(kernel::SoftmaxInit{}, O, m, l);
  ram.compute(Attention{}, S, O, m, l, Q, ram.stream(all(SlowArray::K, kShape)), ram.stream(all(SlowArray::V, kShape)),
              none, none);
  ram.compute(kernel::SoftmaxFinish{}, O, m, l);
  EXPECT_EQ(out, before);
  ram.store(O, all(SlowArray::O, kShape));
  for (const float o : out) EXPECT_FLOAT_EQ(o, 0.5F);
}

}  // namespace
}  // namespace redblue::test
