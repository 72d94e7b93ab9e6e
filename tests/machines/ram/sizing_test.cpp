#include "redblue/machines/ram/sizing.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "redblue/kernels/attention.hpp"
#include "redblue/machines/ram/ram.hpp"

namespace redblue::test {
namespace {

using machine::ArenaMemory;
using machine::ArenaWords;
using machine::CallerMemory;
using machine::Ram;
using machine::Sizing;
using machine::SlowMemory;
using machine::Storage;
using machine::Team;

constexpr index_t kM = 4000;

/// Arrays of these types and no data.
SlowMemory slow_memory(DType dtype) {
  SlowMemory slow;
  for (Storage& s : slow) {
    s.dtype = dtype;
    s.row_stride = 64;
  }
  return slow;
}

template <class T, class Schedule>
ArenaWords words_of(const Schedule& schedule, const SlowMemory& slow,
                    const kernel::Implementations<T>& implementations) {
  const CallerMemory<T> memory(slow, implementations);
  Sizing sizing(kM, sizeof(T), memory, implementations);
  schedule(sizing);
  return sizing.words();
}

constexpr Block block(SlowArray a, Shape s) { return {a, 0, 0, 0, s}; }

TEST(Sizing, WalksEveryRoundOfALoop) {
  // The third of seven rounds takes the most.
  const auto schedule = [](auto& m) {
    m.each(7, [](auto& w, index_t i) {
      const index_t n = i == 2 ? 9 : i;
      const auto tile = w.alloc(SlowArray::O, {n, 10});
      w.compute(kernel::Gemm{}, w.alloc(SlowArray::O, {n, n}), tile, w.stream(block(SlowArray::K, {10, n})));
    });
  };
  const ArenaWords words =
      words_of<double>(schedule, slow_memory(DType::f32), kernel::implementations<double>(Isa::portable));
  EXPECT_EQ(words.tiles, 96 + 81);  // 90 words, and what is left of a cache line of 8
  EXPECT_EQ(words.staging[2], 90);
  EXPECT_EQ(words.staging[0], 0);
}

TEST(Sizing, CountsNoBufferForWhatIsReadWhereItLies) {
  const auto schedule = [](auto& m) {
    const auto tile = m.alloc(SlowArray::O, {10, 10});
    m.compute(kernel::Gemm{}, tile, tile, m.stream(block(SlowArray::K, {10, 10})));
    m.update(kernel::ZeroOver{}, block(SlowArray::dQ, {5, 5}));
  };
  const auto& implementations = kernel::implementations<float>(Isa::portable);
  EXPECT_EQ(words_of<float>(schedule, slow_memory(DType::f32), implementations).staging, ArenaWords{}.staging);
  EXPECT_EQ(words_of<float>(schedule, slow_memory(DType::f16), implementations).staging[2], 100);
  EXPECT_EQ(words_of<float>(schedule, slow_memory(DType::f16), implementations).staging[0], 25);
}

/// Attention of one block of queries, for implementations that pack tiles, read 16-bit words, or multiply bf16.
TEST(Sizing, SaysWhatAnArenaThenRunsIn) {
  using Step = kernel::OnlineAttention;
  std::vector<std::byte> data(64 * 64 * sizeof(double));
  std::vector<const kernel::Implementations<float>*> tables{&kernel::implementations<float>(Isa::portable)};
  for (const Isa isa : {Isa::avx2, Isa::avx512})
    if (is_available(isa)) tables.push_back(&kernel::implementations<float>(isa));
  for (const Isa isa : {Isa::avx512_bf16, Isa::amx_bf16})
    if (is_available(isa)) tables.push_back(&kernel::bf16_implementations(isa));
  for (const kernel::Implementations<float>* implementations : tables)
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64})
      for (const index_t queries : {1, 3, 17, 50}) {
        if (implementations->bf16 && dtype != DType::bf16) continue;
        const auto schedule = [&](auto& m) {
          const auto Q = m.load(block(SlowArray::Q, {queries, 7}), Step::Q);
          const auto O = m.alloc(SlowArray::O, {queries, 5}, Step::O);
          const auto top = m.alloc(SlowArray::O, {queries, 1}), sum = m.alloc(SlowArray::O, {queries, 1});
          const auto S = m.alloc(SlowArray::O, {queries, 9}, Step::S);
          const auto K = m.load(block(SlowArray::K, {9, 7}), Layout::read_only);
          m.compute(kernel::SoftmaxInit{}, O, top, sum);
          m.compute(Step{}, S, O, top, sum, Q, m.stream(block(SlowArray::K, {9, 7})),
                    m.stream(block(SlowArray::V, {9, 5})), kNoWords, kNoWords);
          m.compute(Step{}, S, O, top, sum, Q, K, m.stream(block(SlowArray::V, {9, 5})), kNoWords, kNoWords);
          m.compute(kernel::SoftmaxFinish{}, O, top, sum);
          m.store(O, block(SlowArray::O, {queries, 5}));
        };
        SlowMemory slow = slow_memory(dtype);
        const ArenaWords words = words_of<float>(schedule, slow, *implementations);
        const auto run_in = [&](const ArenaWords& given) {
          for (Storage& s : slow) s.data = data.data();
          const auto pool = make_pool(1);
          std::vector<float> tiles(static_cast<std::size_t>(given.tiles));
          ArenaMemory<float> memory{tiles, {}};
          std::vector<std::vector<float>> staging;
          for (std::size_t i = 0; i < given.staging.size(); ++i)
            memory.staging[i] = staging.emplace_back(static_cast<std::size_t>(given.staging[i]));
          Team::run(*pool, 1, [&](Team& team) {
            Ram<float> ram(team, kM, {slow}, *implementations, std::span(&memory, 1));
            schedule(ram);
          });
        };
        SCOPED_TRACE(testing::Message() << name_of(implementations->isa) << ' ' << name_of(dtype) << ' ' << queries);
        EXPECT_NO_THROW(run_in(words));
        ArenaWords less = words;
        --less.tiles;
        EXPECT_THROW(run_in(less), Error);
        for (std::size_t i = 0; i < words.staging.size(); ++i) {
          if (words.staging[i] == 0) continue;
          less = words;
          --less.staging[i];
          EXPECT_THROW(run_in(less), Error);
        }
      }
}

}  // namespace
}  // namespace redblue::test
