// Plans of least time for lengths that were not seen before (redblue/planner/recipes.hpp) beside those of the walk
// through all tilings: how long both take, and what their plans take by the model of time; and how long plans of the
// fewest words take, for fast memories of 3,000 to 1,000,000 words. docs/time-model.md has the figures.
//   g++ -O2 -std=c++20 -I. bench/plans.cpp build/release/libredblue.a -lfmt -lpthread -o plans
//   ./plans [PROBLEMS [THREADS [LONGEST [SEED]]]]
// Times are those of the processor, for one thread, so that other work on the machine counts little.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "redblue/planner/plan_here.hpp"
#include "redblue/planner/recipes.hpp"

using namespace redblue;

namespace {

double now_us() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return 1e6 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_nsec);
}

/// A problem of a kind that models have.
class Draw {
 public:
  Draw(unsigned seed, double longest) : random_(seed), longest_(longest) {}

  std::pair<Problem, DType> operator()() {
    Problem p{.batch = of({1, 2}), .heads = of({1, 8, 12, 32})};
    if (p.heads % 4 == 0 && of({0, 0, 1}) == 1) p.kv_heads = p.heads / 4;
    p.n_q = p.n_k = length(8, longest_);
    p.d = p.d_v = of({32, 64, 96, 128});
    switch (of({0, 1, 2, 3, 4})) {
      case 0:
        p.causal = true;
        break;
      case 1:
        p.causal = true;
        p.window_left = length(16, 2048);
        break;
      case 2:
        p.n_q = 1;
        break;
      case 3:
        p.n_q = length(1, longest_);
        break;
      default:
        break;
    }
    if (p.n_q == p.n_k && of({0, 0, 1}) == 1) p.op = Operation::backward;
    return {p, of({0, 1}) == 0 ? DType::f32 : DType::bf16};
  }

 private:
  index_t of(std::initializer_list<index_t> list) { return std::data(list)[random_() % list.size()]; }
  index_t length(double least, double most) {
    return static_cast<index_t>(
        std::exp(std::uniform_real_distribution<double>(std::log(least), std::log(most))(random_)));
  }

  std::mt19937 random_;
  double longest_;
};

void print(const char* what, std::vector<double> x) {
  std::ranges::sort(x);
  double logs = 0;
  for (const double v : x) logs += std::log(v);
  const auto at = [&](double share) { return x[static_cast<std::size_t>(share * static_cast<double>(x.size() - 1))]; };
  std::printf("%-44s geometric mean %8.4g, median %8.4g, 90 %% %8.4g, 98 %% %8.4g, most %8.4g\n", what,
              std::exp(logs / static_cast<double>(x.size())), at(0.5), at(0.9), at(0.98), x.back());
}

}  // namespace

int main(int argc, char** argv) {
  const int problems = argc > 1 ? std::atoi(argv[1]) : 500, threads = argc > 2 ? std::atoi(argv[2]) : 1;
  const double longest = argc > 3 ? std::atof(argv[3]) : 8192;
  Draw draw(argc > 4 ? static_cast<unsigned>(std::atoi(argv[4])) : 1, longest);
  TimeOptions time{.hardware = this_machine(), .isa = best_isa(), .threads = threads};
  Recipes recipes;
  std::vector<double> ratios, walks, kinds, classes, others, words;
  std::mt19937 random(1);
  for (int i = 0; i < problems; ++i) {
    const auto [p, dtype] = draw();
    time.dtype = dtype;
    const auto us = [&](const auto& f) {
      const double before = now_us();
      f();
      return now_us() - before;
    };
    plan::Plan walked, quick;
    walks.push_back(us([&] { walked = make_fastest_plan(p, {}, time); }));
    Recipes none;
    kinds.push_back(us([&] { quick = none.plan(p, {}, time); }));
    Problem other = p;
    other.n_k = other.n_k * 13 / 8;
    if (p.n_q == p.n_k) other.n_q = other.n_k;
    classes.push_back(us([&] { none.plan(other, {}, time); }));
    recipes.plan(p, {}, time);
    others.push_back(us([&] { quick = recipes.plan(p, {}, time); }));
    const double M = std::exp(std::uniform_real_distribution<double>(std::log(3e3), std::log(1e6))(random));
    words.push_back(us([&] { plan::make_plan(p, {.M = static_cast<index_t>(M)}); }));
    ratios.push_back(modelled_time(quick, time).total_s / modelled_time(walked, time).total_s);
    if (ratios.back() > 1.1)
      std::printf("%.3f: n_q = %lld, n_k = %lld, d = %lld: %s, walked %s\n", ratios.back(),
                  static_cast<long long>(p.n_q), static_cast<long long>(p.n_k), static_cast<long long>(p.d),
                  plan::text_of(quick.row()).c_str(), plan::text_of(walked.row()).c_str());
  }
  print("modelled time over that of the walk's plan", ratios);
  print("walk, us", walks);
  print("first plan of a kind, us", kinds);
  print("first plan of another class of it, us", classes);
  print("plan of a class that was seen, us", others);
  print("plan of the fewest words, us", words);
  double all = 0;
  for (const double us : words) all += us;
  std::printf("plan of the fewest words, mean, us: %.4g\n", all / static_cast<double>(problems));
}
