#include "files/unused.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "redblue/language/nearest.hpp"

namespace redblue::cli {

namespace {

/// The part of a name before its last dot or slash: tensors of one layer share it.
std::string_view folder_of(std::string_view name) {
  const std::size_t end = name.find_last_of("./");
  return name.substr(0, end == std::string_view::npos ? 0 : end);
}

/// What a name says of a tensor, and the option that gives a run the same.
struct Meaning {
  std::string_view part;    ///< of the name
  std::string_view what;    ///< it is by that
  std::string_view option;  ///< of a run
  std::string_view value;   ///< of that option: "" for a flag; --name takes the tensor itself
};
constexpr std::array kMeanings{
    Meaning{"padding", "says which keys are padding", "--seqused-k", "LENGTHS"},
    Meaning{"seqlen", "holds lengths of sequences", "--seqlens", "LENGTHS"},
    Meaning{"seqused", "holds lengths of sequences", "--seqused-k", "LENGTHS"},
    Meaning{"validlen", "holds lengths of sequences", "--seqused-k", "LENGTHS"},
    Meaning{"contextlen", "holds lengths of sequences", "--seqused-k", "LENGTHS"},
    Meaning{"segmentid", "says which tokens belong together", "--seqlens", "LENGTHS"},
    Meaning{"mask", "is a mask", "--name", "bias"},
    Meaning{"bias", "is a bias", "--name", "bias"},
    Meaning{"alibi", "holds slopes", "--name", "slopes"},
    Meaning{"slope", "holds slopes", "--name", "slopes"},
    Meaning{"sink", "holds sinks", "--name", "sinks"},
    Meaning{"saux", "holds sinks", "--name", "sinks"},
    Meaning{"softcap", "is a cap of the scores", "--softcap", "NUMBER"},
    Meaning{"logitcap", "is a cap of the scores", "--softcap", "NUMBER"},
    Meaning{"scale", "is a factor of the scores", "--scale", "NUMBER"},
    Meaning{"causal", "says whether the mask is causal", "--causal", ""},
    Meaning{"window", "is a window", "--window", "LEFT,RIGHT"},
    Meaning{"dropout", "is a dropout", "--dropout", "NUMBER"},
};

std::optional<Meaning> meaning_of(std::string_view name) {
  const std::string letters = letters_of(name.substr(folder_of(name).size()));
  const auto found =
      std::ranges::find_if(kMeanings, [&](const Meaning& m) { return letters.find(m.part) != std::string::npos; });
  return found == kMeanings.end() ? std::nullopt : std::optional(*found);
}

/// What `redblue compare` takes of these options.
bool is_of_compare(std::string_view option) {
  return option == "--seqlens" || option == "--seqused-k" || option == "--scale" || option == "--causal";
}

/// How a tensor would be used.
std::string remedy(const Meaning& m, const Archive::Entry& e, const Problem& kind, bool run) {
  const std::string name = readable(e.name), who = run || is_of_compare(m.option) ? "" : "redblue run with ";
  if (m.option != "--name") return fmt::format("{}{}{}{}", who, m.option, m.value.empty() ? "" : " ", m.value);
  if (run && std::ranges::none_of(facts_of(kind.op).reads, [&](SlowArray a) { return tensor_name(a) == m.value; }))
    return fmt::format("an operation that takes one: --op {} does not", name_of(kind.op));
  const std::string sign = m.value != "bias"          ? ""
                           : e.type == DType::boolean ? " (bool: true keeps)"
                           : m.part == "mask"         ? " (added to the scores: 0 keeps, -inf hides)"
                                                      : " (added to the scores)";
  return fmt::format("{}--name {}={}{}", who, m.value, name, sign);
}

/// What a tensor is called elsewhere.
bool is_called(const std::string& tensor, const std::string& letters) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kNames{{{"q", "query"},
                                                                                  {"q", "queries"},
                                                                                  {"k", "key"},
                                                                                  {"k", "keys"},
                                                                                  {"v", "value"},
                                                                                  {"v", "values"},
                                                                                  {"do", "dout"},
                                                                                  {"do", "gradout"},
                                                                                  {"do", "gradoutput"},
                                                                                  {"o", "out"},
                                                                                  {"o", "output"},
                                                                                  {"lse", "logsumexp"}}};
  return letters == tensor ||
         std::ranges::find(kNames, std::pair<std::string_view, std::string_view>(tensor, letters)) != kNames.end();
}

}  // namespace

void add_unused(const Command& command, FileOptions& files) {
  command.flag("--strict", files.strict, "refuse an --input that holds tensors which are not used");
  command
      .option("--ignore", files.ignored,
              "a tensor of --input that shall not be used although its name says that it changes the result, as mask "
              "or bias does (repeatable)")
      .type_name("NAME");
}

bool FileOptions::ignores(const std::string& name) const { return std::ranges::find(ignored, name) != ignored.end(); }

bool FileOptions::is_taken_from(const Archive* archive, const std::string& tensor) const {
  const std::string name = name_of(tensor);
  const bool named = name != tensor;  // by --name, beside which --ignore is refused
  return archive != nullptr && archive->contains(name) && (named || !ignores(name));
}

std::vector<std::string> other_names(const Archive& archive, const FileOptions& files,
                                     const std::vector<std::string>& tensors) {
  std::vector<std::string> found;
  const std::vector<Archive::Entry> entries = archive.entries();
  for (const std::string& tensor : tensors) {
    const bool named = files.name_of(tensor) != tensor;  // and the message names that
    if (named || archive.contains(tensor)) continue;
    for (const Archive::Entry& e : entries)
      if (is_called(tensor, letters_of(e.name))) {
        found.push_back(fmt::format("{}={}", tensor, readable(e.name)));
        break;
      }
  }
  return found;
}

void require_names_in(const Archive& archive, const FileOptions& files, const std::vector<std::string>& tensors) {
  const std::vector<std::string> other = other_names(archive, files, tensors);
  if (other.empty()) return;
  std::string missing;
  for (const std::string& n : other)
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", n.substr(0, n.find('=')));
  throw InvalidProblem(fmt::format("{} has no tensor {}; it has others that may be meant: give --name {}",
                                   files.input.value(), missing, fmt::join(other, " --name ")));
}

std::vector<std::string> unused_names(const FileOptions& files, const Archive& archive,
                                      const std::set<std::string>& used, const Problem& kind,
                                      const std::set<std::string>& given, bool run) {
  const std::string& path = files.input.value();
  std::vector<std::string> names;
  const auto is_given = [&](const Meaning& m) {
    return given.contains(std::string(m.option == "--name" ? "--" + std::string(m.value) : m.option)) ||
           (m.part == "mask" && given.contains("--mask"));
  };
  for (const Archive::Entry& e : archive.entries()) {
    if (used.contains(e.name) || files.ignores(e.name)) continue;
    names.push_back(readable(e.name));
    const auto meaning = meaning_of(e.name);
    const auto beside = [&](const std::string& name) { return folder_of(name) == folder_of(e.name); };
    constexpr std::array kOfOthers{"dbias", "lbias", "dsinks", "lsinks", "tbias", "gbias", "tsinks", "gsinks"};
    const bool changes_nothing =  // of the results: it is an output, or a direction
        std::ranges::find(kOfOthers, e.name) != kOfOthers.end();
    if (!meaning || changes_nothing || std::ranges::none_of(used, beside) || is_given(*meaning)) continue;
    throw InvalidProblem(fmt::format(
        "{} holds {} [{}], which {} by its name and would not be used: give {}, or leave it out with --ignore {}", path,
        names.back(), fmt::join(e.shape, ", "), meaning->what, remedy(*meaning, e, kind, run), names.back()));
  }
  for (const std::string& name : files.ignored)
    if (!archive.contains(name) || used.contains(name))
      throw InvalidProblem(fmt::format(
          "--ignore {}: {} {}", name, path,
          used.contains(name) ? "has it, and it is used: leave one of them out" : "has no tensor of this name"));
  if (files.strict && !names.empty())
    throw InvalidProblem(fmt::format("--strict: {} holds {}, which would not be used: leave {} out of the file", path,
                                     fmt::join(names, ", "), names.size() == 1 ? "it" : "them"));
  std::ranges::sort(names);
  return names;
}

std::string unused_text(const FileOptions& files, const std::vector<std::string>& names) {
  return fmt::format("{} also holds {}, which {} not used (--strict refuses that)", files.input.value(),
                     fmt::join(names, ", "), names.size() == 1 ? "is" : "are");
}

}  // namespace redblue::cli
