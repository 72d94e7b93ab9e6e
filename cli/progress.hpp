#pragma once
#include <chrono>
#include <functional>

namespace redblue::cli {

/// A bar on standard error, where that is a terminal; silent elsewhere.
class Progress {
 public:
  explicit Progress(bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// For RunOptions::progress; empty when nothing is to be shown.
  std::function<void(double)> callback();

 private:
  void show(double share);

  bool active_;
  std::chrono::steady_clock::time_point shown_{};
};

}  // namespace redblue::cli
