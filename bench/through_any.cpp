// What a run costs more when its schedule is compiled for machine::Any alone. docs/machines.md has the figures.
//   g++ -O3 -std=c++20 -Iinclude bench/through_any.cpp build/release/libredblue.a -lpthread -o through_any
//   ./through_any
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <vector>

#include "redblue/attention.hpp"

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
  std::printf("%-58s compiled %10.3f us  through Any %10.3f us  %+.1f %%\n", what, 1e6 * x, 1e6 * y, 100 * (y / x - 1));
}

void race_plans(const char* name, index_t n, plan::Tiling tiling) {
  Problem problem;
  problem.n_q = problem.n_k = n;
  problem.d = problem.d_v = 64;
  plan::Options options{.M = 1 << 20};
  options.schedule = name;
  const plan::Registry& ours = plan::Registry::built_in();
  plan::Schedule general = *ours.find(problem.op, name);
  general.compiled = nullptr;
  plan::Registry registry;
  registry.add(general);
  plan::Plan compiled = plan::make_plan(problem, options);
  options.registry = &registry;
  plan::Plan any = plan::make_plan(problem, options);
  for (plan::Plan* p : {&compiled, &any}) {
    plan::Row& row = p->rows[p->chosen];
    if (!tiling.empty()) row.tiling = tiling;
    row.footprint = row.algorithm->footprint(problem.sizes(), row.tiling);
  }
  std::vector<float> data(static_cast<std::size_t>(4 * n * 64), 0.5F);
  const std::array<index_t, 4> shape{1, 1, n, 64};
  const auto tensor = [&](index_t i) { return Tensor(data.data() + i * n * 64, DType::f32, shape); };
  Tensors tensors;
  tensors[SlowArray::Q] = tensor(0);
  tensors[SlowArray::K] = tensor(1);
  tensors[SlowArray::V] = tensor(2);
  tensors[SlowArray::O] = tensor(3);
  char what[100];
  std::snprintf(what, sizeof what, "run, n = %lld, M = %s: %s", static_cast<long long>(n),
                compiled.row().footprint.str().c_str(), name);
  RunOptions one;
  one.threads = 1;
  race(what, [&] { run(compiled, tensors, one); }, [&] { run(any, tensors, one); });
  std::snprintf(what, sizeof what, "count, n = %lld, M = %s: %s", static_cast<long long>(n),
                compiled.row().footprint.str().c_str(), name);
  race(what, [&] { count(compiled); }, [&] { count(any); });
}

}  // namespace

int main() {
  race_plans("flash", 16, {{"Br", 16}, {"Bc", 16}});
  race_plans("flash", 16, {{"Br", 16}, {"Bc", 1}});
  race_plans("flash", 256, {{"Br", 2}, {"Bc", 1}});
  race_plans("flash", 256, {{"Br", 8}, {"Bc", 1}});
  race_plans("small_cache", 256, {{"panel", 0}, {"a", 16}, {"b", 16}, {"a2", 16}, {"c2", 16}});
  race_plans("flash", 1024, {{"Br", 96}, {"Bc", 128}});
}
