#pragma once
#include <optional>
#include <string>

/// What else the machine does.
namespace redblue::hardware {

/// Processor time of the whole machine and of this process, in seconds.
struct CpuTime {
  double total = 0;  ///< of all processors, also while they wait
  double busy = 0;   ///< of these, what any process took, and what other virtual machines took
  double own = 0;    ///< of this process, all its threads
};
/// From the first line of /proc/stat, "cpu  5289743 ...", where a second has this number of ticks. There is no result
/// if it is another line.
std::optional<CpuTime> cpu_time(const std::string& line, double ticks, double own);
/// Now. There is no result where the system does not say.
std::optional<CpuTime> cpu_time_now();
/// The share of all processors, 0 to 1, that others than this process took between two moments. There is no result if
/// one moment is not known, or no tick passed.
std::optional<double> share_of_others(const std::optional<CpuTime>& from, const std::optional<CpuTime>& to);

/// Processes that run or wait for a processor, the mean of the last minute.
std::optional<double> load_average();

/// "2026-11-29T20:45:00Z"
std::string time_now();

}  // namespace redblue::hardware
