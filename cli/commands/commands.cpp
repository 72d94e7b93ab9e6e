#include "commands/commands.hpp"

namespace redblue::cli {

void add_commands(Program& program) {
  for (const auto add : {add_plan, add_bound, add_count, add_explain, add_bench, add_run, add_info, add_trace,
                         add_compare, add_regimes, add_doctor, add_pebble, add_solve})
    add(program);
}

}  // namespace redblue::cli
