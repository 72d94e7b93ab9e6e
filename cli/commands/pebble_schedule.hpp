#pragma once
#include <optional>
#include <string>

#include "command_line.hpp"
#include "redblue/pebbling/graphs/catalog.hpp"
#include "redblue/pebbling/rules.hpp"

namespace redblue::cli {

/// What `redblue pebble` does with schedules.
class ScheduleOptions {
 public:
  void add_to(const Command& command);
  bool given() const { return schedule_.has_value(); }
  /// Throws Error if a flag is given that says nothing without a schedule; of --moves and --output only if asked.
  void require_none(bool moves_too = true, bool output_too = true) const;
  bool moves() const { return moves_; }
  const std::optional<std::string>& output() const { return output_; }
  /// Plays the schedule, or all that can, and prints what they move. Returns the exit code.
  int play(const pebbling::Arguments& sizes, const pebbling::Rules& rules, std::optional<index_t> M, bool json) const;

 private:
  std::optional<std::string> schedule_;
  std::optional<std::string> op_;
  std::optional<std::string> output_;
  bool moves_ = false;
  bool optimum_ = false;
  std::optional<double> seconds_;
};

}  // namespace redblue::cli
