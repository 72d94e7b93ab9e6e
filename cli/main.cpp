#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <sstream>
#include <string>

#include "commands.hpp"
#include "redblue/core/error.hpp"
#include "redblue/version.hpp"

namespace {

/// `exit_code`, or 2 with a message if standard output did not take all that was printed.
int after_output(int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  fmt::print(stderr, "redblue: cannot write to standard output: {}\n", std::strerror(errno));
  return 2;
}

/// Parses, runs the command, answers with the exit code.
int run_program(int argc, char** argv) {
  redblue::cli::Program program(
      "redblue: attention with provably few words moved between fast and slow memory", std::string(redblue::kVersion),
      "Exit codes: 0 done, 1 the answer is no (a count or a verification failed), 2 bad input.");
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow any more is an error with a message, not the end
  redblue::cli::add_plan(program);
  redblue::cli::add_bound(program);
  redblue::cli::add_count(program);
  redblue::cli::add_bench(program);
  redblue::cli::add_run(program);
  redblue::cli::add_trace(program);
  redblue::cli::add_figure1(program);
  redblue::cli::add_doctor(program);
  redblue::cli::add_info(program);
  int exit_code = 0;
  try {
    exit_code = program.run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "redblue: {}\n", e.what());
    return 2;
  }
  return after_output(exit_code);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_program(argc, argv);
  } catch (const std::exception& e) {  // not a command's: those are reported inside
    std::fputs(e.what(), stderr);
    return 2;
  }
}
