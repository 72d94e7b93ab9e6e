#pragma once
#include <CLI/CLI.hpp>

/// One function per subcommand: adds it to the program; its callback sets `exit_code`.
namespace redblue::cli {

void add_plan(CLI::App& program, int& exit_code);
void add_bound(CLI::App& program, int& exit_code);
void add_count(CLI::App& program, int& exit_code);
void add_bench(CLI::App& program, int& exit_code);
void add_run(CLI::App& program, int& exit_code);
void add_trace(CLI::App& program, int& exit_code);
void add_figure1(CLI::App& program, int& exit_code);
void add_doctor(CLI::App& program, int& exit_code);

}  // namespace redblue::cli
