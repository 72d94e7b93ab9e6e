#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "redblue/language/types.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): the name is that of the library CLI11
class App;
class Option;
}  // namespace CLI

/// The command line: what redblue uses of CLI11, which command_line.cpp alone includes. Its headers take 7 s to
/// compile.
namespace redblue::cli {

/// An option that was just added, to be given a type, limits, and relations to other options.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(option) {}
  Option type_name(const std::string& name) const;
  Option required() const;
  Option positive() const;
  Option in_range(index_t least, index_t most) const;
  /// A size in words: for one in bytes the message names the option that takes it.
  Option words() const;
  Option one_of(const std::vector<std::string>& names) const;
  /// The heading it stands under in --help.
  Option group(const std::string& heading) const;

 private:
  CLI::Option& option_;
};

/// A subcommand. Where its options are kept must outlive the parse.
class Command {
 public:
  Command(CLI::App& app, int& exit_code) : app_(app), exit_code_(exit_code) {}
  /// T: index_t, std::size_t, double, std::string, an optional of one of them, or a vector of strings.
  template <class T>
  Option option(const std::string& name, T& to, const std::string& what) const;
  void flag(const std::string& name, bool& to, const std::string& what) const;
  /// The end of its --help.
  void footer(const std::string& text) const;
  /// What it does, once its options are parsed. Returns the exit code.
  void does(std::function<int()> work) const;

 private:
  CLI::App& app_;
  int& exit_code_;
};

class Program {
 public:
  Program(const std::string& what, const std::string& version, const std::string& footer);
  ~Program();
  Command command(const std::string& name, const std::string& what);
  /// Parses, does what the subcommand does, returns the exit code: 2 if the command line is wrong, having said so.
  int run(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
  int exit_code_ = 0;
};

/// An error message if the text is not a whole number, else "".
std::string not_decimal(const std::string& text);

}  // namespace redblue::cli
