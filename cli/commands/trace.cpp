#include "redblue/machines/trace.hpp"

#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <sstream>

#include "commands/commands.hpp"
#include "options/options.hpp"
#include "report/json.hpp"

namespace redblue::cli {

void add_trace(Program& program) {
  const Command command =
      program.command("trace", "list every operation of a schedule, in order (docs/machines.md has the form)");
  command.footer("Example:\n  redblue trace --n 3 --d 2 --M 24 --schedule flash");
  struct TraceOptions {
    ProblemOptions problem;
    std::size_t most = 1'000'000;
  };
  auto options = std::make_shared<TraceOptions>();
  options->problem.add_to(command);
  command.option("--most", options->most, "give up beyond this many operations").positive();
  command.does([options] {
    const plan::Plan plan = options->problem.plan();
    std::stringstream text;
    machine::write_text(text, trace(plan, options->most));
    if (options->problem.json) {
      Json lines = Json::array();
      for (std::string line; std::getline(text, line);)
        if (line.front() != '#') lines.push_back(line);
      print({{"schema", "redblue.trace/2"},
             {"problem", to_json(plan.problem)},
             {"M", to_json(plan.options.M)},
             {"schedule", std::string(plan.row().schedule)},
             {"tiling", to_json(plan.row().tiling)},
             {"own_tilings", own_tilings_to_json(plan.row().tiling)},
             {"operations", lines}});
    } else {
      std::cout << text.rdbuf() << std::flush;
    }
    return 0;
  });
}

}  // namespace redblue::cli
