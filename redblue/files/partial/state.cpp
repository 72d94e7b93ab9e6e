#include "redblue/files/partial/state.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "redblue/files/partial/blocks.hpp"
#include "redblue/files/partial/descriptor.hpp"
#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"

namespace redblue::file::partial {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "redblue.partial/2";

std::string path_of(const std::string& directory) { return fmt::format("{}/{}", directory, kProgress); }

Json to_json(const std::vector<Fact>& facts) {
  Json j = Json::object();
  for (const auto& [name, value] : facts) j[name] = value;
  return j;
}
std::vector<Fact> facts_of(const Json& j) {
  std::vector<Fact> facts;
  for (const auto& [name, value] : j.items()) facts.emplace_back(name, value);
  return facts;
}

std::string hex(std::uint64_t x) { return fmt::format("{:016x}", x); }

/// What this program's checksum makes of a known text.
std::string checksum_mark() { return hex(checksum(std::as_bytes(std::span(kSchema, 8)))); }

/// Blocks that follow each other as one list of checksums.
Json to_json(const State::File& f) {
  Json runs = Json::array();
  index_t next = -1;
  for (const auto& [block, sum] : f.blocks) {
    if (block != next) runs.push_back({{"first", block}, {"checksums", Json::array()}});
    runs.back()["checksums"].push_back(hex(sum));
    next = block + 1;
  }
  return {{"name", f.name}, {"bytes", f.bytes}, {"written", runs}};
}

State::File file_of(const Json& j) {
  State::File f{j.at("name"), j.at("bytes")};
  for (const Json& run : j.at("written")) {
    index_t block = run.at("first");
    for (const std::string text : run.at("checksums")) f.blocks.emplace_back(block++, std::stoull(text, nullptr, 16));
  }
  return f;
}

}  // namespace

const State::File* State::file(const std::string& name) const {
  const auto found = std::ranges::find(files, name, &File::name);
  return found == files.end() ? nullptr : &*found;
}

void write_state(const State& s, const std::string& directory) {
  Json j{{"schema", kSchema},
         {"checksum", checksum_mark()},
         {"facts", to_json(s.facts)},
         {"facts_of_plan", to_json(s.facts_of_plan)},
         {"block_bytes", s.block_bytes},
         {"checkpoint", s.checkpoint},
         {"part", s.position.part},
         {"operations", s.position.operations},
         {"fast_memory", {{"bytes", s.fast_bytes}, {"checksum", hex(s.fast_checksum)}}},
         {"complete", s.complete},
         {"files", Json::array()}};
  for (const State::File& f : s.files) j["files"].push_back(to_json(f));
  const std::string text = j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  const std::string path = path_of(directory), temporary = fmt::format("{}/{}", directory, kNextProgress);
  {
    const Descriptor file(temporary);
    file.cut(0);
    write_at(file.number(), temporary, 0, std::as_bytes(std::span(text)));
    file.make_durable();
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) throw_errno("rename the finished file to", path, errno);
  make_names_durable(directory);
}

std::optional<State> read_state(const std::string& directory) {
  const std::string path = path_of(directory);
  if (access(path.c_str(), F_OK) != 0) return std::nullopt;
  const Descriptor file(path);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  read_at(file.number(), path, 0, std::as_writable_bytes(std::span(text)));
  const auto refuse = [&](std::string_view why) {
    return IoError(fmt::format("'{}' {}: remove '{}' and run again", path, why, directory), path);
  };
  try {
    const Json j = Json::parse(text);
    if (j.at("schema") != kSchema) throw refuse("was written by another version of redblue");
    if (j.at("checksum") != checksum_mark())
      throw refuse("was written by a build of redblue whose checksums are others");
    State s;
    s.facts = facts_of(j.at("facts"));
    s.facts_of_plan = facts_of(j.at("facts_of_plan"));
    s.block_bytes = j.at("block_bytes");
    s.checkpoint = j.at("checkpoint");
    s.position = {j.at("part"), j.at("operations")};
    s.fast_bytes = j.at("fast_memory").at("bytes");
    s.fast_checksum = std::stoull(j.at("fast_memory").at("checksum").get<std::string>(), nullptr, 16);
    s.complete = j.at("complete");
    for (const Json& f : j.at("files")) s.files.push_back(file_of(f));
    return s;
  } catch (const Json::exception& e) {
    throw refuse(fmt::format("is damaged ({})", e.what()));
  } catch (const std::logic_error& e) {  // a checksum that is no number
    throw refuse(fmt::format("is damaged ({})", e.what()));
  }
}

}  // namespace redblue::file::partial
