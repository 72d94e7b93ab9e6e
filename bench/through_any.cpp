// What a run and a count cost more through machine::Any than where the schedule is compiled for their machine.
// docs/machines.md has the figures.
//   g++ -O3 -std=c++20 -Iinclude bench/through_any.cpp build/release/libredblue.a -lpthread -o through_any
//   ./through_any
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <vector>

#include "redblue/machines/counting.hpp"
#include "redblue/machines/ram/ram.hpp"
#include "redblue/schedules/describe.hpp"
#include "redblue/schedules/forward/flash.hpp"
#include "redblue/schedules/forward/small_cache.hpp"

using namespace redblue;

namespace {

double seconds_of(const auto& f, int times) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / times;
}

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

/// Medians of `a` and `b`, called in turn.
void race(const char* what, const auto& a, const auto& b) {
  const double once = seconds_of(a, 1);
  const int times = std::clamp(static_cast<int>(0.02 / once), 1, 10000);
  std::vector<double> of_a, of_b;
  for (int round = 0; round < 41; ++round) {
    of_a.push_back(seconds_of(a, times));
    of_b.push_back(seconds_of(b, times));
  }
  const double x = median(of_a), y = median(of_b);
  std::printf("%-40s compiled %10.3f us  through Any %10.3f us  %+.1f %%\n", what, 1e6 * x, 1e6 * y, 100 * (y / x - 1));
}

/// One head of n queries and keys, d = 64, with these tiles: S compiled for a machine, and S on it through Any.
template <class S>
void race_machines(index_t n, const plan::Tiling& tiling) {
  const plan::Instances one{{.n_q = n, .n_k = n, .d = 64, .d_v = 64}, 0.125, 1};
  const index_t M = S::footprint(one.sizes, detail::tiling_of<S>(tiling)).to_index();
  machine::SlowMemory slow;
  std::array<std::vector<float>, kSlowArrays> data;
  for (const SlowMatrix& m : schedule::ForwardOperands(one.sizes, one.scale).all()) {
    std::vector<float>& words = data[index_of(m.array)];
    words.assign(static_cast<std::size_t>(m.shape.words()), 0.5F);
    slow[index_of(m.array)] = machine::Storage::matrix(words.data(), m.shape);
  }
  machine::Ram<float> ram(M, {slow});
  machine::Counted running(ram);
  machine::Counting counting;
  const auto race_on = [&](const char* verb, auto& m) {
    machine::Any any(m);
    char what[100];
    std::snprintf(what, sizeof what, "%s, n = %lld, M = %lld: %s", verb, static_cast<long long>(n),
                  static_cast<long long>(M), S::name.data());
    race(what, [&] { detail::run_instances<S>(m, one, tiling); }, [&] { detail::run_instances<S>(any, one, tiling); });
  };
  race_on("run", running);
  race_on("count", counting);
}

}  // namespace

int main() {
  using schedule::FlashForward;
  race_machines<FlashForward>(16, {{"Br", 16}, {"Bc", 16}});
  race_machines<FlashForward>(16, {{"Br", 16}, {"Bc", 1}});
  race_machines<FlashForward>(256, {{"Br", 2}, {"Bc", 1}});
  race_machines<FlashForward>(256, {{"Br", 8}, {"Bc", 1}});
  race_machines<schedule::SmallCacheForward>(256, {{"panel", 0}, {"a", 16}, {"b", 16}, {"a2", 16}, {"c2", 16}});
  race_machines<FlashForward>(1024, {{"Br", 96}, {"Bc", 128}});
}
