#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "commands/commands.hpp"
#include "redblue/language/error.hpp"
#include "redblue/version.hpp"
#include "report/standard_output.hpp"

namespace {

/// Parses, runs the command, answers with the exit code.
int run_program(int argc, char** argv) {
  redblue::cli::Program program(
      "redblue: attention with provably few words moved between fast and slow memory", std::string(redblue::kVersion),
      "Exit codes: 0 done, 1 the answer is no (a count or a verification failed), 2 bad input, 3 the files of "
      "a run are written, but standard output did not take its report.\n"
      "Pages of HTML, by the Python package: python -m redblue report RUN.json, python -m redblue explore.");
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow any more is an error with a message, not the end
  redblue::cli::add_commands(program);
  int exit_code = 0;
  try {
    exit_code = program.run(argc, argv);
  } catch (const std::bad_alloc&) {
    redblue::cli::note(
        "this machine has not enough memory for the problem; fewer queries, or a pattern with fewer runs "
        "of keys, take less");
    return 2;
  } catch (const std::exception& e) {
    redblue::cli::note(fmt::format("{}", e.what()));
    return 2;
  }
  const std::string failure = redblue::cli::output_failure();
  if (exit_code == redblue::cli::kReportLost || failure.empty()) return exit_code;
  redblue::cli::note(fmt::format("cannot write to standard output: {}", failure));
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  redblue::cli::fill_closed_descriptors();
  try {
    return run_program(argc, argv);
  } catch (const std::exception& e) {  // not a command's: those are reported inside
    std::fputs(e.what(), stderr);
    return 2;
  }
}
