#include "report/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "redblue/language/error.hpp"
#include "report/standard_output.hpp"

namespace redblue::cli {

namespace {

constexpr int kWidth = 40;
constexpr auto kRedraw = std::chrono::milliseconds(100);  // of the bar

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::chrono::duration<double> progress_period() {
  const char* const asked = std::getenv("REDBLUE_PROGRESS_SECONDS");
  if (asked == nullptr) return std::chrono::seconds(10);
  char* end = nullptr;
  const double seconds = std::strtod(asked, &end);
  if (end == asked || *end != '\0' || !(seconds > 0 && seconds < 1e6))
    throw InvalidProblem(fmt::format("REDBLUE_PROGRESS_SECONDS={}: give a number of seconds above 0", asked));
  return std::chrono::duration<double>(seconds);
}

Progress::Progress(bool quiet, double bytes)
    : active_(!quiet),
      terminal_(isatty(STDERR_FILENO) == 1),
      bytes_(bytes),
      start_(std::chrono::steady_clock::now()),
      shown_(terminal_ ? std::chrono::steady_clock::time_point() : start_) {}

Progress::~Progress() {
  if (active_ && terminal_) std::fputs("\r\x1b[K", stderr);  // leave the line empty
}

std::function<void(double)> Progress::callback() {
  if (!active_) return {};
  const std::chrono::duration<double> every = terminal_ ? kRedraw : progress_period();
  return [this, every](double share) {
    const auto now = std::chrono::steady_clock::now();
    if (!first_) first_.emplace(now, share);
    if (now - shown_ < every) return;
    shown_ = now;
    show(share);
  };
}

void Progress::show(double share) {
  const double seconds = seconds_since(start_);
  const auto [first, share_then] = *first_;
  const double since = seconds_since(first), done = share - share_then;
  std::string rest = done > 0 ? fmt::format(", {:.0f} s left", since * (1 - share) / done) : "";
  if (bytes_ > 0 && done > 0) rest += fmt::format(", {:.0f} MB/s", done * bytes_ / since * 1e-6);
  if (terminal_) {
    const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * kWidth);
    std::fputs(
        fmt::format("\r[{:#<{}}{: <{}}] {:3.0f} %{}\x1b[K", "", full, "", kWidth - full, 100 * share, rest).c_str(),
        stderr);
    std::fflush(stderr);
  } else {
    note(fmt::format("{:.0f} % after {:.0f} s{}", 100 * share, seconds, rest));
  }
}

class Heartbeat::Watch {
 public:
  explicit Watch(std::string doing) {
    const std::chrono::duration<double> every = progress_period();
    const auto start = std::chrono::steady_clock::now();
    thread_ = std::thread([this, every, start, doing = std::move(doing)] {
      std::unique_lock lock(mutex_);
      while (!ended_.wait_for(lock, every, [this] { return over_; }))
        note(fmt::format("{} for {:.0f} s so far", doing, seconds_since(start)));
    });
  }
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;
};

Heartbeat::Heartbeat(std::string doing) : watch_(std::make_unique<Watch>(std::move(doing))) {}
Heartbeat::~Heartbeat() = default;

}  // namespace redblue::cli
