#include "redblue/bound/bound.hpp"

#include <fmt/format.h>

#include <memory>

#include "commands.hpp"
#include "json.hpp"
#include "options.hpp"

namespace redblue::cli {

void add_bound(Program& program) {
  const Command command = program.command("bound", "proven lower bounds on words moved");
  command.footer(
      "Examples:\n  redblue bound --n 4096 --d 64 --M 16384\n  redblue bound --op backward --n 65536 --d 64 --M "
      "262144");
  auto options = std::make_shared<ProblemOptions>();
  options->add_to(command, false);
  options->planner.add_width(command);
  command.does([options] {
    const Problem p = options->problem();
    const bound::AttentionProblem x = plan::bound_problem(p, options->fast_memory(p));
    const auto bounds = bound::bounds_of(p.op, x);
    const bound::Bound best = bound::best(bounds);
    if (options->json) {
      Json list = Json::array();
      for (const bound::Bound& b : bounds) list.push_back(to_json(b));
      print({{"schema", "redblue.bound/1"},
             {"problem", to_json(p)},
             {"M", to_json(x.M)},
             {"bound", to_json(best)},
             {"bounds", list}});
    } else {
      for (const bound::Bound& b : bounds)
        fmt::print("{} {:<8} {:>24} words  {}{}; class: {}; condition: {}\n", b.name == best.name ? '*' : ' ', b.name,
                   b.words.str(), b.status, b.holds ? "" : ", does not apply here", b.algorithms, b.condition);
    }
    return 0;
  });
}

}  // namespace redblue::cli
