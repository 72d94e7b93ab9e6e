#include "redblue/pebbling/play/scheduled.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"
#include "redblue/pebbling/graphs/attention.hpp"

namespace redblue::pebbling {
namespace {

WordsOf numbers_for(Operation op, const Sizes& sizes) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(-1, 1);
  WordsOf words;
  const auto fill = [&](SlowArray a) {
    const Words count = plan::matrix_of(op, sizes, a).shape.words();
    for (index_t i = 0; i < count.to_index(); ++i) words[a].push_back(uniform(random));
  };
  for (const SlowArray a : plan::inputs_of(op)) fill(a);
  if (sizes.accumulate)
    for (const SlowArray a : plan::outputs_of(op)) fill(a);
  return words;
}

index_t number_of(const Arguments& arguments, const std::string& name) {
  const auto given = arguments.find(name);
  if (given == arguments.end()) throw Error(fmt::format("a schedule needs the size {}; give it, from 1 on", name));
  const std::string& text = given->second;
  index_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size() || number < 1 || number > kMostNodes)
    throw Error(fmt::format("{} = {}; it is a number from 1 to {}", name, file::printable(text), kMostNodes));
  return number;
}

Patterns patterns_of(const std::string& mask, index_t n_q, index_t n_k) {
  const Visible sees = parse_visible(mask, static_cast<Node>(n_q), static_cast<Node>(n_k));
  RunLists rows;
  for (index_t i = 0; i < n_q; ++i) {
    std::vector<Range> runs;
    for (index_t j = 0; j < n_k; ++j)
      if (sees(static_cast<Node>(i), static_cast<Node>(j))) runs.push_back({j, j + 1});
    rows.append(1, runs);
  }
  return {std::make_shared<const RunLists>(std::move(rows))};
}

std::string mask_of(const Problem& p) {
  if (p.patterns.empty()) return p.causal ? "causal" : "full";
  std::string text;
  for (index_t i = 0; i < p.n_q; ++i) {
    std::string row(static_cast<std::size_t>(p.n_k), '0');
    for (const Range& run : p.patterns[0].of(i))
      for (index_t j = run.begin; j < run.end; ++j) row[static_cast<std::size_t>(j)] = '1';
    text += (i > 0 ? "/" : "") + row;
  }
  return text;
}

/// As generators of graphs call it: "forward nq=2 nk=3 d=1 dv=1 mask=full".
std::string problem_text(const Problem& p) {
  const std::string_view kind = p.op == Operation::forward      ? "forward"
                                : p.op == Operation::backward   ? "backward"
                                : p.op == Operation::gradient_x ? "gradient"
                                                                : "";
  const bool is_causal = p.causal && !p.window_left && !p.window_right && p.prefix == 0 && p.dilation == 1 &&
                         p.causal_offset.value_or(p.n_k - p.n_q) == p.n_k - p.n_q;
  const bool is_plain = p.softcap == 0 && !p.bias && !p.alibi && !p.sinks && p.dropout == 0 &&
                        p.score == Score::softmax && p.patterns.size() <= 1 && !p.several() && !p.accumulate &&
                        !p.scale && (is_causal || !p.masked());
  if (kind.empty() || !is_plain) return "none";
  return fmt::format("{} nq={} nk={} d={} dv={} mask={}", kind, p.n_q, p.n_k, p.d, p.d_v, mask_of(p));
}

}  // namespace

Problem problem_for(Operation op, const Arguments& arguments) {
  constexpr std::array<std::string_view, 5> kNames = {"nq", "nk", "d", "dv", "mask"};
  for (const auto& [name, value] : arguments)
    if (std::ranges::find(kNames, name) == kNames.end())
      throw Error(
          fmt::format("a schedule has no parameter {}; it has {}", file::printable(name), fmt::join(kNames, ", ")));
  Problem p;
  p.op = op;
  p.n_q = number_of(arguments, "nq");
  p.n_k = number_of(arguments, "nk");
  p.d = number_of(arguments, "d");
  p.d_v = arguments.contains("dv") ? number_of(arguments, "dv") : p.d;
  const std::string mask = arguments.contains("mask") ? arguments.at("mask") : "full";
  if (mask == "causal")
    p.causal = true;
  else if (mask != "full")
    p.patterns = patterns_of(mask, p.n_q, p.n_k);
  return p;
}

Words words_beside(const Problem& problem, std::string_view schedule, const Rules& rules) {
  if (rules.compute == Rules::Compute::place) return 2;
  const bool full_row = problem.op == Operation::backward && problem.d_v == 1 && schedule == "ring";
  return full_row || schedule == "strips" || schedule == "ring_two_pass" ? 1 : 0;
}

Play play(const plan::Plan& plan, const Rules& rules, bool rooms) {
  const plan::Instances x = plan.instances();
  if (x.count != 1)
    throw Unsupported(fmt::format("a game is played for one head, or one group of heads, not for {}", x.count));
  if (plan.forward != nullptr) throw Unsupported("a gradient is played with O and lse given, not after a forward pass");
  const plan::Row& row = plan.row();
  constexpr index_t kMost = 2'000'000;  // multiply-adds: half a minute or less
  if (row.flops > 2 * kMost)
    throw Unsupported(
        fmt::format("a play of {} multiply-adds is too long: at most {} are played; give fewer queries, "
                    "keys or features",
                    (row.flops / 2).str(), kMost));
  return play(*row.algorithm, x.sizes, x.scale, numbers_for(plan.problem.op, x.sizes), row.tiling, rules,
              static_cast<std::size_t>(plan.options.M.to_index()), rooms);
}

Certificate certificate_of(const plan::Plan& plan, Play play) {
  return {.schedule = plan::text_of(plan.row()),
          .graph_text = "the graph of its kernels",
          .problem = problem_text(plan.problem),
          .rules = play.rules,
          .M = play.M,
          .graph = std::move(play.graph),
          .moves = std::move(play.moves),
          .cost = play.cost};
}

}  // namespace redblue::pebbling
