#include "command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <optional>

#include "options.hpp"

namespace redblue::cli {

namespace {

bool takes_whole_number(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type == "INT" || type == "UINT" || type == "WORDS";
}

}  // namespace

Option Option::type_name(const std::string& name) const { return Option(*option_.type_name(name)); }
Option Option::required() const { return Option(*option_.required()); }
Option Option::positive() const {
  return Option(*option_.check([](const std::string& text) {
    double value = 0;
    return CLI::detail::lexical_cast(text, value) && value > 0 ? std::string()
                                                               : fmt::format("{}: give a number above 0", text);
  }));
}
Option Option::in_range(index_t least, index_t most) const { return Option(*option_.check(CLI::Range(least, most))); }
Option Option::one_of(const std::vector<std::string>& names) const {
  return Option(*option_.check(CLI::IsMember(names)));
}
Option Option::group(const std::string& heading) const { return Option(*option_.group(heading)); }

template <class T>
Option Command::option(const std::string& name, T& to, const std::string& what) const {
  return Option(*app_.add_option(name, to, what));
}
template Option Command::option(const std::string&, index_t&, const std::string&) const;
template Option Command::option(const std::string&, std::size_t&, const std::string&) const;
template Option Command::option(const std::string&, double&, const std::string&) const;
template Option Command::option(const std::string&, std::string&, const std::string&) const;
template Option Command::option(const std::string&, std::optional<index_t>&, const std::string&) const;
template Option Command::option(const std::string&, std::optional<double>&, const std::string&) const;
template Option Command::option(const std::string&, std::optional<std::string>&, const std::string&) const;
template Option Command::option(const std::string&, std::vector<std::string>&, const std::string&) const;

void Command::flag(const std::string& name, bool& to, const std::string& what) const { app_.add_flag(name, to, what); }

void Command::footer(const std::string& text) const { app_.footer(text); }

void Command::does(std::function<int()> work) const {
  app_.callback([&exit_code = exit_code_, work = std::move(work)] { exit_code = work(); });
}

Program::Program(const std::string& what, const std::string& version, const std::string& footer)
    : app_(std::make_unique<CLI::App>(what)) {
  app_->set_version_flag("--version", version);
  app_->footer(footer);
}

Program::~Program() = default;

Command Program::command(const std::string& name, const std::string& what) {
  return {*app_->add_subcommand(name, what), exit_code_};
}

int Program::run(int argc, char** argv) {
  for (CLI::App* command : app_->get_subcommands({}))
    for (CLI::Option* option : command->get_options())
      if (takes_whole_number(*option)) option->check(not_decimal);  // CLI11 takes 010 for 8
  try {
    app_->parse(argc, argv);
    if (app_->get_subcommands().empty()) throw CLI::RequiredError::Subcommand(1);  // an unknown one is named before
  } catch (const CLI::ParseError& e) {
    return app_->exit(e) == 0 ? 0 : 2;
  }
  return exit_code_;
}

}  // namespace redblue::cli
