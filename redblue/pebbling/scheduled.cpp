#include "redblue/pebbling/scheduled.hpp"

#include <fmt/format.h>

#include <random>
#include <utility>

#include "redblue/language/error.hpp"

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

/// As generators of graphs call it: "forward nq=2 nk=3 d=1 dv=1 mask=full".
std::string problem_text(const Problem& p) {
  const std::string_view kind = p.op == Operation::forward      ? "forward"
                                : p.op == Operation::backward   ? "backward"
                                : p.op == Operation::gradient_x ? "gradient"
                                                                : "";
  const bool is_causal = p.causal && !p.window_left && !p.window_right && p.prefix == 0 && p.dilation == 1 &&
                         p.causal_offset.value_or(p.n_k - p.n_q) == p.n_k - p.n_q;
  const bool is_plain = p.modifiers() == Modifiers() && p.score == Score::softmax && p.patterns.empty() &&
                        !p.several() && !p.accumulate && !p.scale && (is_causal || !p.masked());
  if (kind.empty() || !is_plain) return "none";
  return fmt::format("{} nq={} nk={} d={} dv={} mask={}", kind, p.n_q, p.n_k, p.d, p.d_v, p.causal ? "causal" : "full");
}

}  // namespace

Words words_beside(std::string_view schedule, const Rules& rules) {
  if (rules.compute == Rules::Compute::place) return 2;
  return schedule == "strips" || schedule == "ring_two_pass" ? 1 : 0;
}

Play play(const plan::Plan& plan, const Rules& rules, bool rooms) {
  const plan::Instances x = plan.instances();
  if (x.count != 1)
    throw Unsupported(fmt::format("a game is played for one head, or one group of heads, not for {}", x.count));
  if (plan.forward != nullptr) throw Unsupported("a gradient is played with O and lse given, not after a forward pass");
  const plan::Row& row = plan.row();
  return play(*row.algorithm, x.sizes, x.scale, numbers_for(plan.problem.op, x.sizes), row.tiling, rules,
              static_cast<std::size_t>(plan.options.M.to_index()), rooms);
}

Certificate certificate_of(const plan::Plan& plan, Play play) {
  return {.schedule = plan::text_of(plan.row()),
          .graph_text = fmt::format("of the schedule {}", plan.row().schedule),
          .problem = problem_text(plan.problem),
          .rules = play.rules,
          .M = play.M,
          .graph = std::move(play.graph),
          .moves = std::move(play.moves),
          .cost = play.cost};
}

}  // namespace redblue::pebbling
