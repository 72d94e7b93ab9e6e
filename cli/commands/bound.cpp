#include "redblue/bounds/bound.hpp"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <optional>

#include "commands/commands.hpp"
#include "options/options.hpp"
#include "redblue/bounds/order.hpp"
#include "redblue/language/error.hpp"
#include "redblue/language/word_type.hpp"
#include "redblue/planner/widths.hpp"
#include "report/json.hpp"

namespace redblue::cli {

namespace {

/// --nonzeros of sparse inputs. Throws InvalidProblem where there cannot be as many.
bound::Nonzeros nonzeros_of(const std::string& text, const Problem& p) {
  if (!attends(p.op))
    throw InvalidProblem(fmt::format("--nonzeros {} is of scores, which operation {} has not", text, name_of(p.op)));
  const std::vector<index_t> list = parse_list("--nonzeros", text, "A,X,AX,AXA");
  const Words most[]{Words(p.n_q) * p.d, Words(p.d) * p.d, Words(p.n_q) * p.d, Words(p.n_q) * p.n_k};
  for (std::size_t k = 0; k < list.size(); ++k)
    if (list[k] < 0 || most[k] < list[k])
      throw InvalidProblem(fmt::format("--nonzeros {}: {} has 0 to {} entries here (n_q = {}, n_k = {}, d = {})", text,
                                       std::array{"A", "X", "A X", "A X A^T"}[k], most[k].str(), p.n_q, p.n_k, p.d));
  return {list[0], list[1], list[2], list[3]};
}

}  // namespace

void add_bound(Program& program) {
  const Command command = program.command("bound", "proven lower bounds on words moved");
  command.footer(
      "Examples:\n  redblue bound --n 4096 --d 64 --M 16384\n  redblue bound --op backward --n 65536 --d 64 --M "
      "262144");
  auto options = std::make_shared<ProblemOptions>();
  options->add_to(command, false);
  options->planner.add_width(command);
  auto nonzeros = std::make_shared<std::optional<std::string>>();
  command
      .option(
          "--nonzeros", *nonzeros,
          "sparse inputs, with scores A X A^T: A,X,AX,AXA, the nonzero entries of each; adds the order of growth of "
          "Li et al., Theorem 4.5")
      .type_name("LIST");
  command.does([options, nonzeros] {
    const Problem p = options->problem();
    plan::Options fast = options->fast_memory(p);
    const bound::AttentionProblem x = plan::bound_problem(p, fast);
    if (fast.memory)
      set_widths(fast, p, parse_dtype("--dtype", options->dtype), word_of(options->compute()),
                 options->widths(p.op, true));
    const auto bytes = [&](const bound::Bound& b) { return plan::least_bytes(b.words, fast, p); };
    const auto json_of = [&](const bound::Bound& b) {
      Json j = to_json(b);
      if (fast.memory) j["bytes"] = to_json(bytes(b));
      return j;
    };
    const auto bounds = bound::bounds_of(p.op, x);
    const bound::Bound best = bound::best(bounds);
    std::optional<bound::Nonzeros> z;
    if (*nonzeros) z = nonzeros_of(**nonzeros, p);
    if (options->json) {
      Json list = Json::array();
      for (const bound::Bound& b : bounds) list.push_back(json_of(b));
      Json result{{"schema", "redblue.bound/1"},
                  {"problem", to_json(p)},
                  {"M", to_json(x.M)},
                  {"bound", json_of(best)},
                  {"bounds", list}};
      if (z)
        result["orders"] = {{{"theorem", "Li et al. 4.5"},
                             {"order", static_cast<double>(bound::sparse_inputs_order(*z, x.M))},
                             {"dividing_M", static_cast<double>(bound::sparse_inputs_dividing_point(*z))}}};
      print(result);
    } else {
      for (const bound::Bound& b : bounds)
        fmt::print("{} {:<8} {:>24} words{}  {}{}; class: {}; condition: {}\n", b.name == best.name ? '*' : ' ', b.name,
                   b.words.str(), fast.memory ? fmt::format("{:>24} bytes", bytes(b).str()) : "", b.status,
                   b.holds ? "" : ", does not apply here", b.algorithms, b.condition);
      if (z)
        fmt::print(
            "  {:<8} {:>24.0f} words  order of growth, without a constant: no bound of this problem; the worst "
            "inputs with these nonzeros, without a mask; small and large cache divide at M = {:.0f}\n",
            "Li 4.5", static_cast<double>(bound::sparse_inputs_order(*z, x.M)),
            static_cast<double>(bound::sparse_inputs_dividing_point(*z)));
    }
    return 0;
  });
}

}  // namespace redblue::cli
