#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "commands/commands.hpp"
#include "redblue/files/atomic_file.hpp"
#include "redblue/hardware/disk.hpp"
#include "redblue/hardware/hardware.hpp"
#include "redblue/language/error.hpp"

namespace redblue::cli {

namespace {

struct DoctorFlags {
  std::optional<std::string> output, disk;
  bool show = false;
  bool json = false;
  bool quiet = false;
};

std::string size_text(std::int64_t bytes) {
  const double x = static_cast<double>(bytes);
  return bytes < (1 << 20)
             ? fmt::format("{:.0f} KiB", x / 0x1p10)
             : (bytes < (1 << 30) ? fmt::format("{:.0f} MiB", x / 0x1p20) : fmt::format("{:.1f} GiB", x / 0x1p30));
}

void print_table(const Hardware& h) {
  fmt::print("{}: {} core{} at {:.2f} GHz\n\n", h.cpu, h.cores, h.cores == 1 ? "" : "s", h.clock * 1e-9);
  fmt::print("{:<6} {:>10} {:>10} {:>16}\n", "level", "size", "shared by", "one core reads");
  for (const MemoryLevel& l : h.levels)
    fmt::print("{:<6} {:>10} {:>10} {:>11.0f} GB/s\n", l.name, size_text(l.bytes), l.cores, l.read_bandwidth * 1e-9);
  fmt::print("{:<6} {:>10} {:>10} {:>11.0f} GB/s together\n\n", "", "", "all cores", h.all_cores_bandwidth * 1e-9);
  fmt::print("{:<12} {:<5} {:>14} {:>16} {:>11} {:>7} {:>14}\n", "one core", "type", "GFLOP/s", "width x clock",
             "per cycle", "ratio", "Gexp2/s");
  bool odd = false;
  for (const Peak& p : h.peaks) {
    const double expected = p.expected(h.clock), ratio = p.flops / expected;
    const ExpRate* const e = h.exp_rate(p.isa, p.dtype);
    odd = odd || (p.isa != Isa::portable && (ratio < 0.9 || ratio > 1.1));
    fmt::print("{:<12} {:<5} {:>14.1f} {:>16.1f} {:>11} {:>7.3f} {:>14}\n", name_of(p.isa), name_of(p.dtype),
               p.flops * 1e-9, expected * 1e-9, fmt::format("{} x {}", p.vectors_per_cycle, p.macs_per_vector), ratio,
               e != nullptr ? fmt::format("{:.2f}", e->elements * 1e-9) : "-");
  }
  fmt::print("\nper cycle: instructions, rounded, times multiply-adds of one; Gexp2/s: exp2(s x - m) and its sum\n");
  if (odd) fmt::print("a ratio far from 1: the clock changed under load, or something else kept the machine busy\n");
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

/// "measured 2026-11-29T20:45:00Z by redblue 0.2.0, ..." and what is doubtful about it.
void print_circumstances(const Hardware& h) {
  const Circumstances& c = h.measured;
  if (!c.at.empty()) {
    fmt::print("measured {} by redblue {}", c.at, c.version);
    if (c.load) fmt::print("; load average before: {:.1f}", *c.load);
    if (c.others) fmt::print("; other processes took {} of the CPUs", percent(*c.others));
    fmt::print(
        "\n{} figures, samples scatter by {} at most; taken again because they looked disturbed: {}; {} look{} so\n",
        c.figures, percent(h.spread), c.repeated, c.disturbed, c.disturbed == 1 ? "s" : "");
  }
  const std::vector<std::string> doubts = doubts_about(h);
  for (const std::string& doubt : doubts) fmt::print("caution: {}\n", doubt);
  if (!doubts.empty()) fmt::print("redblue doctor measures anew; leave the machine alone meanwhile\n");
}

/// The file that a measurement replaces.
struct Before {
  std::string text;                  ///< what it was, for a sentence; empty where there is none
  std::optional<Hardware> hardware;  ///< where it can be read

  explicit Before(const std::string& path) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return;
    try {
      hardware = load_hardware(path);
      text =
          fmt::format(", in place of one {}", hardware->measured.at.empty() ? "without a date" : hardware->measured.at);
      if (!is_of_this_processor()) text += " of another processor";
    } catch (const IoError&) {
      text = ", in place of one that cannot be read";
    }
  }
  bool is_of_this_processor() const { return hardware && hardware->cpu == describe_hardware().cpu; }
};

/// What a sweep over one kind of requests gave: GB/s by their size and how many are under way.
void print_sweep(const DiskSweep& sweep) {
  std::set<std::int64_t> requests;
  std::set<int> depths;
  for (const SweepCell& c : sweep.cells) {
    requests.insert(c.request);
    depths.insert(c.depth);
  }
  fmt::print("reads in GB/s, in order or by blocks, whichever is less; under way at a time:\n{:<10}", "request");
  for (const int depth : depths) fmt::print(" {:>6}", depth);
  for (const std::int64_t request : requests) {
    fmt::print("\n{:<10}", size_text(request));
    for (const int depth : depths) {
      const auto cell = std::ranges::find_if(
          sweep.cells, [&](const SweepCell& c) { return c.request == request && c.depth == depth; });
      fmt::print(" {:>6}", cell == sweep.cells.end() ? "-" : fmt::format("{:.2f}", cell->bandwidth() * 1e-9));
    }
  }
  fmt::print("\n{}", sweep.complete ? "" : "there was no time for all of them: this disk is slow\n");
  if (sweep.others.value_or(0) > kMostOthers)
    fmt::print("caution: other processes took {} of the CPUs meanwhile; leave the machine alone and measure again\n",
               percent(*sweep.others));
}

void print_disk(const Disk& d) {
  fmt::print(
      "disk {}, {} of {}: reads {:.2f} GB/s with {} requests of {} ({}, {}), writes {:.2f} GB/s; latency {:.0f} us; "
      "measured {}\n",
      d.directory, d.file_system, size_text(d.bytes), d.read_bandwidth * 1e-9, d.depth, size_text(d.request), d.engine,
      d.direct ? "direct" : "through the page cache", d.write_bandwidth * 1e-9, d.latency * 1e6, d.at);
}

int doctor(const DoctorFlags& flags) {
  const std::string path = flags.output.value_or(default_hardware_path());
  if (flags.quiet && (flags.json || flags.show))
    throw InvalidProblem(fmt::format("--quiet and --{}: give one of them", flags.json ? "json" : "show"));
  if (path.empty())
    throw InvalidProblem("neither XDG_CONFIG_HOME nor HOME says where the hardware file goes: give --output FILE");
  if (flags.disk && flags.show)
    throw InvalidProblem("--disk and --show: give one of them; --show says what is known of a disk");
  if (flags.output && !flags.show) file::AtomicFile{path};  // what is wrong with the place shows before the measurement
  std::optional<DiskSweep> sweep;
  std::string before;
  Hardware h;
  if (flags.show) {
    h = load_hardware(path);
  } else {
    const Before old(path);
    if (flags.disk) sweep = measure_disk(*flags.disk);
    const bool keeps_the_rest = flags.disk && old.is_of_this_processor();
    h = keeps_the_rest ? *old.hardware : measure_hardware();
    if (!keeps_the_rest) before = old.text;
    if (sweep)
      h.disk = sweep->disk;
    else if (old.is_of_this_processor())
      h.disk = old.hardware->disk;
    save_hardware(h, path);
  }
  if (flags.json)
    fmt::print("{}", to_json(h));
  else if (!flags.quiet) {
    print_table(h);
    print_circumstances(h);
    if (sweep) print_sweep(*sweep);
    if (h.disk) print_disk(*h.disk);
    fmt::print("{} {}{}\n", flags.show ? "read from" : "written to", path, before);
  }
  return 0;
}

}  // namespace

void add_doctor(Program& program) {
  const Command command = program.command("doctor", "measure this machine, once, for plans that minimise time");
  command.footer(
      "Takes a few seconds; leave the machine alone meanwhile. A figure that looks disturbed, because samples scatter "
      "or\n"
      "other processes took much of the CPUs, is taken again, and the table says what stayed so.\n"
      "--disk measures a disk alone, by a temporary file of 256 MiB, and adds it to the hardware file; the rest of "
      "the\n"
      "file stays if it is of this processor.\n"
      "Examples:\n"
      "  redblue doctor\n"
      "  redblue doctor --disk /data\n"
      "  redblue doctor --show\n"
      "  redblue doctor --output here.json --json");
  auto flags = std::make_shared<DoctorFlags>();
  command
      .option("--output", flags->output, "hardware file (default ${XDG_CONFIG_HOME:-~/.config}/redblue/hardware.json)")
      .type_name("FILE");
  command
      .option(
          "--disk", flags->disk,
          "measure the disk of this directory: reads of 64 KiB to 2 MiB, 1 to 128 at a time, for files as slow memory")
      .type_name("DIR");
  command.flag("--show", flags->show,
               "measure nothing: say what the file holds, of when, and if it is of this machine");
  command.flag("--json", flags->json, "print the file instead of a table");
  command.flag("--quiet", flags->quiet, "print nothing but errors");
  command.does([flags] { return doctor(*flags); });
}

}  // namespace redblue::cli
