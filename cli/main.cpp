#include <fmt/format.h>

#include <exception>

#include "commands.hpp"
#include "redblue/core/error.hpp"
#include "redblue/version.hpp"

int main(int argc, char** argv) {
  CLI::App program{"redblue: attention with provably few words moved between fast and slow memory"};
  program.set_version_flag("--version", std::string(redblue::kVersion));
  program.require_subcommand(1);
  program.footer("Exit codes: 0 done, 1 the answer is no (a count or a verification failed), 2 bad input.");
  int exit_code = 0;
  redblue::cli::add_plan(program, exit_code);
  redblue::cli::add_bound(program, exit_code);
  redblue::cli::add_count(program, exit_code);
  redblue::cli::add_run(program, exit_code);
  redblue::cli::add_trace(program, exit_code);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return program.exit(e) == 0 ? 0 : 2;
  } catch (const std::exception& e) {
    fmt::print(stderr, "redblue: {}\n", e.what());
    return 2;
  }
  return exit_code;
}
