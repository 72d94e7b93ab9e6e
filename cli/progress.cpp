#include "progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace redblue::cli {

namespace {
constexpr int kWidth = 40;
constexpr auto kEvery = std::chrono::milliseconds(100);
}  // namespace

Progress::Progress(bool quiet) : active_(!quiet && isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (active_) std::fputs("\r\x1b[K", stderr);  // leave the line empty
}

std::function<void(double)> Progress::callback() {
  if (!active_) return {};
  return [this](double share) { show(share); };
}

void Progress::show(double share) {
  const auto now = std::chrono::steady_clock::now();
  if (now - shown_ < kEvery) return;
  shown_ = now;
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * kWidth);
  fmt::print(stderr, "\r[{:#<{}}{: <{}}] {:3.0f} %", "", full, "", kWidth - full, 100 * share);
  std::fflush(stderr);
}

}  // namespace redblue::cli
