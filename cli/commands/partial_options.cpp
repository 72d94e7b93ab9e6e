#include "commands/partial_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "redblue/files/partial/blocks.hpp"
#include "report/json.hpp"

namespace redblue::cli {

namespace {

/// A checksum of numbers that come one after another.
class Checksum {
 public:
  void add(index_t number) {
    numbers_.push_back(number);
    if (numbers_.size() == kAtOnce) fold();
  }
  std::uint64_t value() {
    fold();
    return sum_;
  }

 private:
  static constexpr std::size_t kAtOnce = 1 << 16;
  void fold() {
    numbers_.push_back(static_cast<index_t>(sum_));
    sum_ = file::partial::checksum(std::as_bytes(std::span(numbers_)));
    numbers_.clear();
  }

  std::vector<index_t> numbers_;
  std::uint64_t sum_ = 0;
};

/// Which keys each query of the patterns sees.
std::string text_of(const Patterns& patterns) {
  Checksum all;
  Words pairs;
  const RunLists* last = nullptr;
  std::uint64_t of_last = 0;
  for (std::size_t k = 0; k < patterns.size(); ++k) {
    if (&patterns[k] != last) {
      last = &patterns[k];
      Checksum one;
      last->for_groups([&](Range rows, std::span<const Range> runs) {
        one.add(rows.end);
        one.add(std::ssize(runs));
        for (const Range& run : runs) {
          one.add(run.begin);
          one.add(run.end);
        }
      });
      of_last = one.value();
    }
    pairs += count_of(*last);
    all.add(static_cast<index_t>(of_last));
  }
  return fmt::format("{} pairs, in {} pattern{}, checksum {:016x}", pairs.str(), patterns.size(),
                     patterns.size() == 1 ? "" : "s", all.value());
}

/// What the output files hold: "o as 'out', lse".
std::string outputs_text(const FileOptions& files, const Problem& p) {
  std::string text;
  for (const SlowArray a : files.written(p)) {
    const std::string name = tensor_name(a);
    if (!files.wants(name)) continue;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
    if (files.output && files.name_of(name) != name) text += fmt::format(" as '{}'", files.name_of(name));
  }
  return text;
}

}  // namespace

file::partial::Options partial_options(const FileOptions& files, const LoadedInputs& loaded, const Problem& p,
                                       const PatternOptions& pattern) {
  file::partial::Options options{.outputs = OutputFiles::paths(files, p), .inputs = loaded.places(files)};
  for (const auto& [name, path] :
       {std::pair{"--mask", pattern.mask}, {"--blocks", pattern.blocks}, {"--csr", pattern.csr}})
    if (path) options.inputs.push_back({name, *path});
  Json problem = to_json(p);
  problem.erase("patterns");
  for (const auto& [name, value] : problem.items()) options.facts.emplace_back(name, value.dump());
  if (!p.patterns.empty()) options.facts.emplace_back("patterns", text_of(p.patterns));
  for (const SlowArray a : inputs_of(p))
    if (const Tensor t = loaded.tensors()[a]; is_read_at_once(a) && t.data != nullptr)
      options.facts.emplace_back("input " + tensor_name(a), fmt::format("{}", fmt::join(numbers_of(t), ", ")));
  options.facts.emplace_back("layout", loaded.layout().name());
  options.facts.emplace_back("outputs", outputs_text(files, p));
  return options;
}

}  // namespace redblue::cli
