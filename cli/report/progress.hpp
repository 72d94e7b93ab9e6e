#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace redblue::cli {

/// How far a run is and how long the rest will take, on standard error: a bar on a terminal, elsewhere a line every
/// progress_period().
class Progress {
 public:
  /// `bytes`: that the run moves in all, for its rate; 0: no rate is shown.
  explicit Progress(bool quiet, double bytes = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// For RunOptions::progress; empty when nothing is to be shown.
  std::function<void(double)> callback();

 private:
  void show(double share);

  bool active_, terminal_;
  double bytes_;
  std::chrono::steady_clock::time_point start_, shown_;
  /// The first that it heard: a run that goes on begins with a share.
  std::optional<std::pair<std::chrono::steady_clock::time_point, double>> first_;
};

/// Says on standard error every progress_period() how long something has taken, while this exists: for work that cannot
/// tell how far it is.
class Heartbeat {
 public:
  explicit Heartbeat(std::string doing);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  class Watch;  ///< the thread that speaks
  std::unique_ptr<Watch> watch_;
};

/// Ten seconds, or what the environment variable REDBLUE_PROGRESS_SECONDS says. Throws InvalidProblem if that is no
/// number above 0.
std::chrono::duration<double> progress_period();

}  // namespace redblue::cli
