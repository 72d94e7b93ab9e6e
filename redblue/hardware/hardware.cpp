#include "redblue/hardware/hardware.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "redblue/files/atomic_file.hpp"
#include "redblue/files/mapped_file.hpp"
#include "redblue/files/text.hpp"
#include "redblue/hardware/topology.hpp"
#include "redblue/language/error.hpp"
#include "redblue/version.hpp"

namespace redblue {

namespace {

template <class List>
auto find_in(const List& list, Isa isa, DType dtype) {
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const auto& e) { return e.isa == isa && e.dtype == dtype; });
  return found == list.end() ? nullptr : &*found;
}

}  // namespace

const Peak* Hardware::peak(Isa isa, DType dtype) const { return find_in(peaks, isa, dtype); }
const ExpRate* Hardware::exp_rate(Isa isa, DType dtype) const { return find_in(exp_rates, isa, dtype); }

const MemoryLevel& Hardware::private_cache() const {
  const auto caches_end = levels.end() - 1;
  const auto shared = std::find_if(levels.begin(), caches_end, [](const MemoryLevel& l) { return l.cores > 1; });
  return shared == levels.begin() ? levels.front() : *(shared - 1);
}

Hardware load_hardware(const std::string& path) {
  const file::MappedFile file(path);
  return hardware_from_json({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path);
}

void save_hardware(const Hardware& hardware, const std::string& path) {
  if (path == default_hardware_path()) {
    std::error_code ignored;  // AtomicFile reports a directory that could not be made
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  }
  file::AtomicFile file(path);
  file.write(to_json(hardware));
  file.commit();
}

std::string default_hardware_path() {
  const auto absolute = [](const char* variable) -> std::string {
    const char* const value = std::getenv(variable);
    return value != nullptr && *value == '/' ? value : "";
  };
  std::string config = absolute("XDG_CONFIG_HOME");
  if (config.empty() && !absolute("HOME").empty()) config = absolute("HOME") + "/.config";
  return config.empty() ? "" : config + "/redblue/hardware.json";
}

bool has_hardware_file() {
  const std::string path = default_hardware_path();
  std::error_code ignored;  // a home directory that cannot be searched has none
  return !path.empty() && std::filesystem::exists(path, ignored);
}

std::vector<std::string> doubts_about(const Hardware& h) {
  std::vector<std::string> doubts;
  if (const std::string cpu = hardware::cpu_name(); h.cpu != cpu)
    doubts.push_back(fmt::format("it is of another processor, {}; this one is {}", file::printable(h.cpu), cpu));
  if (const int cores = hardware::cores(); h.cores != cores)
    doubts.push_back(fmt::format("it is of {} cores; this process may use {}", h.cores, cores));
  const Circumstances& c = h.measured;
  if (c.at.empty())
    doubts.emplace_back("a version of redblue wrote it that did not note when and under what load");
  else if (c.version != kVersion)
    doubts.push_back(fmt::format("redblue {} wrote it; this is {}", file::printable(c.version), kVersion));
  if (c.brief)
    doubts.emplace_back("it was measured in a moment, for a first plan");
  else if (c.disturbed > 0 || h.spread > kMostSpread)
    doubts.push_back(fmt::format(
        "something else kept the machine busy: samples scatter by {:.0f} %{}", 100 * h.spread,
        c.figures == 0 ? "" : fmt::format(", and {} of {} figures look disturbed", c.disturbed, c.figures)));
  return doubts;
}

const Hardware& this_machine() {
  static const Hardware hardware =
      has_hardware_file() ? with_new_peaks(load_hardware(default_hardware_path())) : measure_briefly();
  return hardware;
}

}  // namespace redblue
