#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "redblue/files/text.hpp"
#include "redblue/hardware/hardware.hpp"
#include "redblue/language/error.hpp"

namespace redblue {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSchema = "redblue.hardware/1";

/// A value of the file, and where it stands: "levels[1].bytes".
class Field {
 public:
  Field(const Json& value, std::string name, const std::string& path)
      : value_(value), name_(std::move(name)), path_(path) {}

  bool has(const char* key) const { return value_.is_object() && value_.contains(key); }
  Field operator[](const char* key) const {
    const std::string name = name_.empty() ? key : fmt::format("{}.{}", name_, key);
    if (!value_.is_object()) fail("an object");
    if (!value_.contains(key)) throw IoError(fmt::format("hardware file '{}': {} is missing", path_, name), path_);
    return {value_[key], name, path_};
  }
  std::vector<Field> list() const {
    if (!value_.is_array() || value_.empty()) fail("a list with at least one entry");
    std::vector<Field> fields;
    fields.reserve(value_.size());
    for (std::size_t i = 0; i < value_.size(); ++i)
      fields.emplace_back(value_[i], fmt::format("{}[{}]", name_, i), path_);
    return fields;
  }
  std::string text() const {
    if (!value_.is_string()) fail("a string");
    return value_.get<std::string>();
  }
  double positive() const {
    if (!value_.is_number() || !(value_.get<double>() > 0) || !std::isfinite(value_.get<double>()))
      fail("a number above 0");
    return value_.get<double>();
  }
  std::int64_t count(std::int64_t most) const {
    if (!value_.is_number_integer() || value_.get<double>() < 1 || value_.get<double>() > static_cast<double>(most))
      fail(fmt::format("a whole number from 1 to {}", most));
    return value_.get<std::int64_t>();
  }
  bool yes_or_no() const {
    if (!value_.is_boolean()) fail("true or false");
    return value_.get<bool>();
  }
  double share() const {
    if (!value_.is_number() || !(value_.get<double>() >= 0)) fail("a number, 0 or more");
    return value_.get<double>();
  }
  int number(int most) const {
    if (!value_.is_number_integer() || value_.get<double>() < 0 || value_.get<double>() > most)
      fail(fmt::format("a whole number from 0 to {}", most));
    return value_.get<int>();
  }
  Isa isa() const {
    const auto isa = isa_from_name(text());
    std::string names;
    for (const IsaFacts& f : kIsaFacts)
      names += fmt::format("{}{}", f.isa == kIsas[0] ? "" : f.isa == *std::rbegin(kIsas) ? " or " : ", ", f.name);
    if (!isa) fail(names);
    return *isa;
  }
  DType dtype() const {
    const auto dtype = dtype_from_name(text());
    if (!dtype) fail("f64, f32, f16 or bf16");
    return *dtype;
  }
  [[noreturn]] void fail(const std::string& wanted) const {
    throw IoError(fmt::format("hardware file '{}': {} is {}, it must be {}", path_, name_.empty() ? "the whole" : name_,
                              file::printable(value_.dump(-1, ' ', true, Json::error_handler_t::replace)), wanted),
                  path_);
  }

 private:
  const Json& value_;
  std::string name_;
  const std::string& path_;
};

constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;
constexpr std::int64_t kMostDepth = 4096;  // of file::io::make_engine

MemoryLevel level_from(const Field& f) {
  return {f["name"].text(), f["bytes"].count(kMostBytes), static_cast<int>(f["cores"].count(kMostCores)),
          f["read_bandwidth"].positive()};
}
Peak peak_from(const Field& f) {
  return {f["isa"].isa(), f["dtype"].dtype(), f["flops"].positive(), static_cast<int>(f["macs_per_vector"].count(8192)),
          f["vectors_per_cycle"].positive()};
}
ExpRate exp_rate_from(const Field& f) { return {f["isa"].isa(), f["dtype"].dtype(), f["elements"].positive()}; }

/// Files of earlier versions have none, and what the system does not tell is left out.
Circumstances circumstances_from(const Field& all) {
  constexpr int kMostFigures = 1000;
  Circumstances c;
  if (!all.has("measured")) return c;
  const Field f = all["measured"];
  c.at = f["at"].text();
  c.version = f["version"].text();
  c.brief = f.has("brief");
  if (f.has("load")) c.load = f["load"].share();
  if (f.has("others")) c.others = f["others"].share();
  c.figures = f["figures"].number(kMostFigures);
  c.repeated = f["repeated"].number(kMostFigures);
  c.disturbed = f["disturbed"].number(kMostFigures);
  return c;
}

Json json_of(const Circumstances& c) {
  Json json = {{"at", c.at}, {"version", c.version}};
  if (c.brief) json["brief"] = true;
  if (c.load) json["load"] = *c.load;
  if (c.others) json["others"] = *c.others;
  json["figures"] = c.figures;
  json["repeated"] = c.repeated;
  json["disturbed"] = c.disturbed;
  return json;
}

Disk disk_from(const Field& f) {
  constexpr std::int64_t kMostOfAFileSystem = std::int64_t{1} << 62;
  Disk d;
  d.directory = f["directory"].text();
  d.file_system = f["file_system"].text();
  d.bytes = f["bytes"].count(kMostOfAFileSystem);
  d.engine = f["engine"].text();
  d.direct = f["direct"].yes_or_no();
  d.read_bandwidth = f["read_bandwidth"].positive();
  d.write_bandwidth = f["write_bandwidth"].positive();
  d.latency = f["latency"].positive();
  d.request = f["request"].count(kMostBytes);
  d.depth = static_cast<int>(f["depth"].count(kMostDepth));
  d.at = f["at"].text();
  return d;
}

Json json_of(const Disk& d) {
  return {{"name", "disk"},
          {"directory", d.directory},
          {"file_system", d.file_system},
          {"bytes", d.bytes},
          {"engine", d.engine},
          {"direct", d.direct},
          {"read_bandwidth", d.read_bandwidth},
          {"write_bandwidth", d.write_bandwidth},
          {"latency", d.latency},
          {"request", d.request},
          {"depth", d.depth},
          {"at", d.at}};
}

}  // namespace

std::string to_json(const Hardware& h) {
  Json levels = Json::array(), peaks = Json::array(), exp_rates = Json::array();
  for (const MemoryLevel& l : h.levels)
    levels.push_back({{"name", l.name}, {"bytes", l.bytes}, {"cores", l.cores}, {"read_bandwidth", l.read_bandwidth}});
  for (const Peak& p : h.peaks)
    peaks.push_back({{"isa", name_of(p.isa)},
                     {"dtype", name_of(p.dtype)},
                     {"flops", p.flops},
                     {"macs_per_vector", p.macs_per_vector},
                     {"vectors_per_cycle", p.vectors_per_cycle},
                     {"width_times_clock", p.expected(h.clock)},
                     {"ratio", p.flops / p.expected(h.clock)}});
  for (const ExpRate& e : h.exp_rates)
    exp_rates.push_back({{"isa", name_of(e.isa)}, {"dtype", name_of(e.dtype)}, {"elements", e.elements}});
  Json all = {{"schema", kSchema}, {"cpu", h.cpu},           {"cores", h.cores},
              {"clock", h.clock},  {"levels", levels},       {"all_cores_bandwidth", h.all_cores_bandwidth},
              {"peaks", peaks},    {"exp_rates", exp_rates}, {"spread", h.spread}};
  if (h.disk) all["disk"] = json_of(*h.disk);
  if (!h.measured.at.empty()) all["measured"] = json_of(h.measured);
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Hardware hardware_from_json(const std::string& text, const std::string& path) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& e) {
    throw IoError(fmt::format("hardware file '{}' is not JSON ({}); write one with: redblue doctor", path,
                              file::printable(e.what())),
                  path);
  }
  const Field all(json, "", path);
  if (const Field schema = all["schema"]; schema.text() != kSchema) schema.fail(fmt::format("\"{}\"", kSchema));
  Hardware h;
  h.cpu = all["cpu"].text();
  h.cores = static_cast<int>(all["cores"].count(kMostCores));
  h.clock = all["clock"].positive();
  for (const Field& f : all["levels"].list()) {
    h.levels.push_back(level_from(f));
    if (h.levels.size() > 1 && h.levels.back().bytes < h.levels[h.levels.size() - 2].bytes)
      f["bytes"].fail(fmt::format("at least {}, the size of the level before", h.levels[h.levels.size() - 2].bytes));
  }
  h.all_cores_bandwidth = all["all_cores_bandwidth"].positive();
  for (const Field& f : all["peaks"].list()) h.peaks.push_back(peak_from(f));
  for (const Field& f : all["exp_rates"].list()) h.exp_rates.push_back(exp_rate_from(f));
  h.spread = all["spread"].share();
  h.measured = circumstances_from(all);
  if (all.has("disk")) h.disk = disk_from(all["disk"]);
  return h;
}

}  // namespace redblue
