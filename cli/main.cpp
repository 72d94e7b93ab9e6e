#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <sstream>
#include <string>

#include "commands.hpp"
#include "options.hpp"
#include "redblue/core/error.hpp"
#include "redblue/version.hpp"

namespace {

bool takes_whole_number(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type == "INT" || type == "UINT" || type == "WORDS";
}

/// `exit_code`, or 2 with a message if standard output did not take all that was printed.
int after_output(int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  fmt::print(stderr, "redblue: cannot write to standard output: {}\n", std::strerror(errno));
  return 2;
}

/// Parses, runs the command, answers with the exit code.
int run_program(int argc, char** argv) {
  CLI::App program{"redblue: attention with provably few words moved between fast and slow memory"};
  program.set_version_flag("--version", std::string(redblue::kVersion));
  program.footer("Exit codes: 0 done, 1 the answer is no (a count or a verification failed), 2 bad input.");
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow any more is an error with a message, not the end
  int exit_code = 0;
  redblue::cli::add_plan(program, exit_code);
  redblue::cli::add_bound(program, exit_code);
  redblue::cli::add_count(program, exit_code);
  redblue::cli::add_bench(program, exit_code);
  redblue::cli::add_run(program, exit_code);
  redblue::cli::add_trace(program, exit_code);
  redblue::cli::add_figure1(program, exit_code);
  redblue::cli::add_doctor(program, exit_code);
  for (CLI::App* command : program.get_subcommands({}))
    for (CLI::Option* option : command->get_options())
      if (takes_whole_number(*option)) option->check(redblue::cli::not_decimal);  // CLI11 takes 010 for 8
  try {
    program.parse(argc, argv);
    if (program.get_subcommands().empty()) throw CLI::RequiredError::Subcommand(1);  // an unknown one is named before
  } catch (const CLI::ParseError& e) {
    std::ostringstream help;  // or the version
    const int code = program.exit(e, help) == 0 ? 0 : 2;
    std::fputs(help.str().c_str(), stdout);
    return after_output(code);
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
