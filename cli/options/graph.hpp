#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "command_line.hpp"
#include "redblue/pebbling/graphs/catalog.hpp"
#include "redblue/pebbling/rules.hpp"

namespace redblue::cli {

/// Which graph a command is about: one of a family, or that of a file.
class GraphOptions {
 public:
  void add_to(const Command& command);
  /// Throws Error for a graph that cannot be made, and for flags that say nothing here.
  pebbling::NamedGraph graph() const;
  /// Is there a graph, rather than a schedule that makes its own?
  bool given() const { return family_.has_value() || hdag_.has_value() || dot_.has_value(); }
  /// What the flag of this parameter says.
  std::optional<std::string> value(std::string_view parameter) const;

 private:
  std::optional<std::string> family_;
  std::optional<std::string> hdag_;
  std::optional<std::string> dot_;
  std::vector<std::optional<std::string>> values_;  ///< of pebbling::parameters()
};

/// The rules of the game. Without flags: `standard`, with recomputation.
class RulesOptions {
 public:
  void add_to(const Command& command);
  pebbling::Rules rules(const std::string& standard = "place") const;

 private:
  std::optional<std::string> compute_;
  bool once_ = false;
  bool unused_inputs_ = false;
  std::size_t processors_ = 1;
};

/// All of a text file, or of standard input for "-". Throws IoError.
std::string read_text(const std::string& path);

}  // namespace redblue::cli
