#pragma once
#include "command_line.hpp"

/// One function per subcommand: adds it to the program.
namespace redblue::cli {

/// The exit code of a run whose files are written, and whose report standard output did not take.
inline constexpr int kReportLost = 3;

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
void add_figure1(Program& program);
void add_doctor(Program& program);

}  // namespace redblue::cli
