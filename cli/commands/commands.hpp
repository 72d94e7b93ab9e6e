#pragma once
#include "command_line.hpp"

namespace redblue::cli {

/// The exit code of a run whose files are written, and whose report standard output did not take.
inline constexpr int kReportLost = 3;

/// All subcommands of this build.
void add_commands(Program& program);

// One function per subcommand: adds it to the program.
void add_plan(Program& program);
void add_bound(Program& program);
void add_count(Program& program);
void add_explain(Program& program);
void add_bench(Program& program);
void add_run(Program& program);
void add_info(Program& program);
void add_trace(Program& program);
void add_compare(Program& program);
void add_regimes(Program& program);
void add_doctor(Program& program);
void add_pebble(Program& program);
void add_solve(Program& program);

}  // namespace redblue::cli
