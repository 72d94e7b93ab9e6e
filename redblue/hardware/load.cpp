#include "redblue/hardware/load.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>

namespace redblue::hardware {

std::optional<CpuTime> cpu_time(const std::string& line, double ticks, double own) {
  std::istringstream in(line);
  std::string name;
  std::array<double, 8> x{};  // user, nice, system, idle, waiting for devices, interrupts of two kinds, stolen
  in >> name;
  for (double& one : x) in >> one;
  if (!in || name != "cpu") return std::nullopt;
  const double idle = x[3] + x[4];
  double total = 0;
  for (const double one : x) total += one;
  return CpuTime{total / ticks, (total - idle) / ticks, own};
}

std::optional<CpuTime> cpu_time_now() {
  std::string line;
  std::getline(std::ifstream("/proc/stat"), line);
  rusage used{};
  if (getrusage(RUSAGE_SELF, &used) != 0) return std::nullopt;
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return cpu_time(line, static_cast<double>(sysconf(_SC_CLK_TCK)), seconds(used.ru_utime) + seconds(used.ru_stime));
}

std::optional<double> share_of_others(const std::optional<CpuTime>& from, const std::optional<CpuTime>& to) {
  if (!from || !to || !(to->total > from->total)) return std::nullopt;
  const double others = to->busy - from->busy - (to->own - from->own);
  return std::clamp(others / (to->total - from->total), 0.0, 1.0);
}

std::optional<double> load_average() {
  double minute = 0;
  return getloadavg(&minute, 1) == 1 ? std::optional(minute) : std::nullopt;
}

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

}  // namespace redblue::hardware
