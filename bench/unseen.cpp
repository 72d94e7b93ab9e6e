// How long plans of least time take for shapes that a process has not seen before, kind by kind.
//   g++ -O2 -std=c++20 -I. bench/unseen.cpp build/release/libredblue.a -lfmt -lpthread -o unseen
//   ./unseen [--problems 500] [--longest 1048576] [--seed 1] [--kinds dense,causal,window,decode] [--plans FILE]
//            [--hardware FILE]
// Each shape is planned twice: by recipes that all shapes share, in the order in which they are drawn, and by recipes
// that have seen nothing. Times are those of the processor, for one thread. `--plans` writes each problem with its plan
// and the plan's modelled time, so that two builds can be compared line by line.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "redblue/masks/patterns.hpp"
#include "redblue/planner/plan_here.hpp"
#include "redblue/planner/recipes.hpp"

using namespace redblue;

namespace {

double now_us() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return 1e6 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_nsec);
}

/// Draws problems of a kind.
class Draw {
 public:
  Draw(unsigned seed, double longest) : random_(seed), longest_(longest) {}

  struct Drawn {
    Problem problem;
    DType dtype;
    std::string text;
  };
  Drawn operator()(std::string_view kind) {
    Problem p{.batch = of({1, 2}), .heads = of({1, 8, 12, 32})};
    if (p.heads % 4 == 0 && of({0, 0, 1}) == 1) p.kv_heads = p.heads / 4;
    p.d = p.d_v = of({32, 64, 96, 128});
    const bool masks = kind.starts_with("mask"), scattered = kind == "scattered";
    const double longest = kind == "packed" ? 65536 : masks || scattered ? 2048 : longest_;
    p.n_q = p.n_k = length(masks || scattered ? 64 : 8, longest);
    if (kind == "causal") p.causal = true;
    if (kind == "window") {
      p.causal = of({0, 1}) == 1;
      p.window_left = length(16, 2048);
      if (!p.causal) p.window_right = p.window_left;
    }
    if (kind == "decode") p.n_q = of({1, 1, 1, 4});
    if (kind == "packed") cut(p);
    if (masks) p.patterns = mask(kind, p.n_q);
    if (scattered) p.patterns = pairs(p.n_q);
    if (kind != "decode" && of({0, 0, 1}) == 1) p.op = Operation::backward;
    const DType dtype = of({0, 1}) == 0 ? DType::f32 : DType::bf16;
    std::string text = std::string(kind) + (p.op == Operation::backward ? " backward" : " forward") +
                       (dtype == DType::f32 ? " f32" : " bf16");
    for (const index_t n : {p.batch, p.heads, p.kv_heads.value_or(p.heads), p.n_q, p.n_k, p.d,
                            p.window_left.value_or(-1), p.window_right.value_or(-1)})
      text += " " + std::to_string(n);
    return {std::move(p), dtype, std::move(text)};
  }

 private:
  index_t of(std::initializer_list<index_t> list) { return std::data(list)[random_() % list.size()]; }
  index_t length(double least, double most) {
    return static_cast<index_t>(
        std::exp(std::uniform_real_distribution<double>(std::log(least), std::log(most))(random_)));
  }
  /// Cuts the queries and keys of a problem into sequences.
  void cut(Problem& p) {
    p.batch = 1;
    p.causal = of({0, 1}) == 1;
    p.cu_seqlens_q = {0};
    while (p.cu_seqlens_q.back() < p.n_q)
      p.cu_seqlens_q.push_back(std::min(p.n_q, p.cu_seqlens_q.back() + length(8, std::max(9.0, p.n_q / 4.0))));
    p.cu_seqlens_k = p.cu_seqlens_q;
  }
  /// An array of booleans that is a mask of the planner's.
  Patterns mask(std::string_view kind, index_t n) {
    const index_t window = length(8, static_cast<double>(n)), prefix = length(1, static_cast<double>(n));
    const index_t block = length(8, static_cast<double>(n));
    return shown(n, [&](index_t i, index_t j) {
      if (kind == "mask-causal") return j <= i;
      if (kind == "mask-window") return j <= i && j >= i - window;
      if (kind == "mask-prefix") return j <= i || j < prefix;
      return i / block == j / block;
    });
  }
  /// Pairs at random, with the one on the diagonal.
  Patterns pairs(index_t n) {
    const double share = 0.3 / static_cast<double>(of({3, 6, 12}));
    std::uniform_real_distribution<double> any(0, 1);
    return shown(n, [&](index_t i, index_t j) { return i == j || any(random_) < share; });
  }
  template <class Sees>
  static Patterns shown(index_t n, const Sees& sees) {
    std::vector<std::uint8_t> seen(static_cast<std::size_t>(n * n));
    for (index_t i = 0; i < n; ++i)
      for (index_t j = 0; j < n; ++j) seen[static_cast<std::size_t>(i * n + j)] = sees(i, j) ? 1 : 0;
    return {std::make_shared<const RunLists>(patterns::of_mask({.n_q = n, .n_k = n}, seen))};
  }

  std::mt19937 random_;
  double longest_;
};

void print(const std::string& what, std::vector<double> x) {
  std::ranges::sort(x);
  const auto at = [&](double share) { return x[static_cast<std::size_t>(share * static_cast<double>(x.size() - 1))]; };
  std::printf("%-34s %5zu %10.4g %10.4g %10.4g %10.4g\n", what.c_str(), x.size(), at(0.5), at(0.9), at(0.99), x.back());
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> given{{"--problems", "500"}, {"--longest", "1048576"},
                                           {"--seed", "1"},       {"--kinds", "dense,causal,window,decode"},
                                           {"--plans", ""},       {"--hardware", ""}};
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!given.contains(argv[i])) return std::fprintf(stderr, "no such option: %s\n", argv[i]), 2;
    given[argv[i]] = argv[i + 1];
  }
  std::vector<std::string> kinds;
  for (std::string_view rest = given["--kinds"]; !rest.empty();) {
    const auto comma = std::min(rest.find(','), rest.size());
    kinds.emplace_back(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  Draw draw(static_cast<unsigned>(std::stoi(given["--seed"])), std::stod(given["--longest"]));
  TimeOptions time{.hardware = given["--hardware"].empty() ? this_machine() : load_hardware(given["--hardware"]),
                   .isa = best_isa()};
  std::FILE* file = given["--plans"].empty() ? nullptr : std::fopen(given["--plans"].c_str(), "w");
  Recipes recipes;
  std::map<std::string, std::vector<double>> in_turn, fresh;
  for (int i = 0; i < std::stoi(given["--problems"]); ++i) {
    const std::string& kind = kinds[static_cast<std::size_t>(i) % kinds.size()];
    const Draw::Drawn drawn = draw(kind);
    time.dtype = drawn.dtype;
    const std::string name = kind + (drawn.problem.op == Operation::backward ? " backward" : " forward");
    const auto us = [&](Recipes& from, const Problem& p) {
      const double before = now_us();
      plan::Plan plan = from.plan(p, {}, time);
      if (!p.patterns.empty()) plan.sizes();
      return std::pair(now_us() - before, std::move(plan));
    };
    // What is made of a pattern is kept with it: each plan has patterns of its own.
    Problem again = drawn.problem;
    std::vector<std::shared_ptr<const RunLists>> lists;
    for (std::size_t k = 0; k < again.patterns.size(); ++k)
      lists.push_back(std::make_shared<const RunLists>(again.patterns[k]));
    if (!lists.empty()) again.patterns = Patterns(lists);
    const auto [first, plan] = us(recipes, drawn.problem);
    Recipes none;
    const double cold = us(none, again).first;
    in_turn[name].push_back(first), in_turn["all"].push_back(first);
    fresh[name].push_back(cold), fresh["all"].push_back(cold);
    if (file != nullptr) {
      const double seconds = modelled_time(plan, time).total_s;
      std::fprintf(file, "%s: %s order %s %.17g %.1f %.1f\n", drawn.text.c_str(), plan::text_of(plan.row()).c_str(),
                   std::string(name_of(plan.problem.order)).c_str(), seconds, first, cold);
    }
  }
  if (file != nullptr) std::fclose(file);
  std::printf("%-34s %5s %10s %10s %10s %10s\n", "microseconds of CPU", "", "median", "90 %", "99 %", "most");
  for (const auto& [name, list] : in_turn) print("in turn: " + name, list);
  for (const auto& [name, list] : fresh) print("first of its kind: " + name, list);
}
