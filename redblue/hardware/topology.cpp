#include "redblue/hardware/topology.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <set>

#include "redblue/hardware/physical_memory.hpp"

namespace redblue::hardware {

namespace {

/// The first line of a file; empty if it cannot be read.
std::string line_of(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

/// The logical processors of a list such as "0-3,8".
std::vector<int> processors(const std::string& list) {
  std::vector<int> all;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (at < end) {
    int first = 0;
    auto [next, error] = std::from_chars(at, end, first);
    if (error != std::errc()) break;
    int last = first;
    if (next < end && *next == '-') next = std::from_chars(next + 1, end, last).ptr;
    for (int p = first; p <= last; ++p) all.push_back(p);
    at = next + 1;  // the comma
  }
  return all;
}

/// How many physical cores these logical processors are.
int count_cores(const std::vector<int>& logical) {
  std::set<std::string> cores;
  for (const int p : logical) {
    const std::string siblings = line_of(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", p));
    cores.insert(siblings.empty() ? fmt::format("{}", p) : siblings);
  }
  return std::max(1, static_cast<int>(cores.size()));
}

/// "1024K" in bytes; 0 if the text is not a size.
std::int64_t parse_size(const std::string& text) {
  std::int64_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc()) return 0;
  const std::string unit(end, text.data() + text.size());
  return size << (unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : 0);
}

std::vector<MemoryLevel> caches_of_sysfs() {
  std::vector<MemoryLevel> caches;
  for (int i = 0;; ++i) {
    const std::string directory = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", i);
    const std::string level = line_of(directory + "level");
    if (level.empty()) return caches;
    const std::int64_t bytes = parse_size(line_of(directory + "size"));
    if (bytes == 0 || line_of(directory + "type") == "Instruction") continue;
    caches.push_back({"L" + level, bytes, count_cores(processors(line_of(directory + "shared_cpu_list"))), 0});
  }
}

std::vector<MemoryLevel> caches_of_sysconf() {
  std::vector<MemoryLevel> caches;
  const auto add = [&](const char* name, int key, int cores) {
    if (const long bytes = sysconf(key); bytes > 0) caches.push_back({name, bytes, cores, 0});
  };
  add("L1", _SC_LEVEL1_DCACHE_SIZE, 1);
  add("L2", _SC_LEVEL2_CACHE_SIZE, 1);
  add("L3", _SC_LEVEL3_CACHE_SIZE, cores());
  return caches;
}

}  // namespace

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.find(':') + 2, line.size()));
  return "unknown processor";
}

int cores() {
  cpu_set_t set;
  std::vector<int> logical;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int p = 0; p < CPU_SETSIZE; ++p)
      if (CPU_ISSET(static_cast<std::size_t>(p), &set)) logical.push_back(p);
  return count_cores(logical);
}

std::vector<MemoryLevel> levels() {
  auto all = caches_of_sysfs();
  if (all.empty()) all = caches_of_sysconf();
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  all.push_back({"DRAM", physical_memory().to_index(), cores(), 0});
  return all;
}

}  // namespace redblue::hardware
