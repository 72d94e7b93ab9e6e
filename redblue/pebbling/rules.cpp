#include "redblue/pebbling/rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"

namespace redblue::pebbling {
namespace {

constexpr std::string_view kProcessorsWord = "processors=";

std::size_t processors_from(const std::string& word) {
  const char* const end = word.data() + word.size();
  std::size_t number = 0;
  const auto [stop, error] = std::from_chars(word.data() + kProcessorsWord.size(), end, number);
  if (error != std::errc() || stop != end)
    throw Error(fmt::format("rules say {}, which needs a number from 1 to {}", file::printable(word), kMostProcessors));
  return number;
}

}  // namespace

std::size_t least_memory(const Graph& g, const Rules& rules) {
  const std::size_t degree = largest_in_degree(g);
  if (degree == 0) return 1;
  switch (rules.compute) {
    case Rules::Compute::place:
      return degree + 1;
    case Rules::Compute::slide:
      return degree;
    case Rules::Compute::partial:
      return 2;
  }
  throw Error("a way to compute that does not exist");
}

void check_memory(const Graph& g, const Rules& rules, std::size_t M) {
  const std::size_t least = least_memory(g, rules);
  if (M >= least) return;
  throw CapacityError(fmt::format("infeasible: M = {} red pebble{} cannot pebble this graph, which needs {} under the "
                                  "rules '{}'",
                                  M, M == 1 ? "" : "s", least, to_text(rules)),
                      Words(least), Words(M));
}

void check(const Rules& rules) {
  if (rules.processors == 0 || rules.processors > kMostProcessors)
    throw Error(fmt::format("processors = {}; a game has 1 to {}", rules.processors, kMostProcessors));
  if (rules.compute != Rules::Compute::partial) return;
  if (rules.recompute)
    throw Error("partial computations compute each edge once; they cannot be joined with recomputation");
  if (rules.processors > 1)
    throw Error(fmt::format("partial computations are played by one processor, not by {}", rules.processors));
}

std::string to_text(const Rules& rules) {
  const bool partial = rules.compute == Rules::Compute::partial;
  std::string text = partial ? "partial" : rules.compute == Rules::Compute::slide ? "slide" : "place";
  if (!partial && !rules.recompute) text += " once";
  if (rules.read_unused_inputs) text += " unused-inputs";
  if (rules.processors != 1) text += fmt::format(" {}{}", kProcessorsWord, rules.processors);
  return text;
}

Rules parse_rules(const std::string& text) {
  std::istringstream words(text);
  Rules rules;
  std::vector<std::string> seen;
  for (std::string word; words >> word;) {
    const std::string key = word.starts_with(kProcessorsWord) ? std::string(kProcessorsWord) : word;
    if (std::ranges::find(seen, key) != seen.end()) throw Error(fmt::format("rules say {} twice", key));
    seen.push_back(key);
    if (seen.size() == 1) {
      if (word == "slide")
        rules.compute = Rules::Compute::slide;
      else if (word == "partial")
        rules = {.compute = Rules::Compute::partial, .recompute = false};
      else if (word != "place")
        throw Error(fmt::format("rules begin with place, slide or partial, not with {}", file::printable(word)));
    } else if (word == "once") {
      rules.recompute = false;
    } else if (word == "unused-inputs") {
      rules.read_unused_inputs = true;
    } else if (key == kProcessorsWord) {
      rules.processors = processors_from(word);
    } else {
      throw Error(
          fmt::format("rules do not know {}; after place, slide or partial may come once, unused-inputs and "
                      "processors=P",
                      file::printable(word)));
    }
  }
  if (seen.empty()) throw Error("rules are empty; they begin with place, slide or partial");
  check(rules);
  return rules;
}

}  // namespace redblue::pebbling
