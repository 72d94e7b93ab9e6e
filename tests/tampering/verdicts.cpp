// What scripts/replay.cpp says about certificates, and whether what they claim is so by the library. Standard input has
// texts, each after a line with its number of bytes: first one that claims what is so, then mutants of it; the line
// `next` says that another group begins. Each text is written to the file of the argument and gets a line: `verdict`,
// the exit code of the program, then 1 if all it claims is so, 0 if not, ? if its outputs differ by too little to say.
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <string>

#include "pebbling/values.hpp"
#include "redblue/language/error.hpp"
#include "redblue/pebbling/certificate.hpp"

#define main main_of_replay          // NOLINT(cppcoreguidelines-macro-usage)
#include "../../scripts/replay.cpp"  // NOLINT(bugprone-suspicious-include)
#undef main

namespace redblue::test {
namespace {

using pebbling::Certificate;

struct CertifiedValues {
  std::map<std::string, double> inputs, all, outputs;
};
CertifiedValues values_of(const Certificate& c) {
  const Values values(c.graph);
  CertifiedValues result;
  std::size_t output = 0;
  for (pebbling::Node v = 0; v < c.graph.size(); ++v) {
    const std::string& name = c.graph.name(v);
    if (c.graph.is_input(v)) result.inputs.emplace(name, 0);
    if (!name.empty()) result.all.emplace(name, values.at(name));
    if (c.graph.is_output(v)) result.outputs.emplace(label(c.graph, v), values.outputs()[output++]);
  }
  return result;
}

/// Is all true that this text claims, given that the original is true? Its play must be legal and counted right, and
/// its outputs must be those of the same problem, as functions of the same inputs; sums l and lse may be outputs or
/// not. Throws Error if its play is not. The replayers compare to 1e-9, with inputs of their own: '?' is near to that.
char truth_of(const std::string& text, const Certificate& original) {
  const Certificate c = pebbling::parse_certificate(text);
  verify(c);
  if (c.problem == "none") return '1';
  if (c.problem != original.problem) return '0';
  const CertifiedValues found = values_of(c), right = values_of(original);
  for (const auto& [name, value] : found.inputs)
    if (!right.inputs.contains(name)) return '0';
  char result = '1';
  for (const auto& [name, value] : found.outputs) {
    const bool is_sum = name[0] == 'l' && name.ends_with(']') && c.problem.starts_with("forward");
    if (!right.outputs.contains(name) && !(is_sum && right.all.contains(name))) return '0';
    const double expected = right.all.at(name);
    if (value == expected) continue;
    const double difference = std::abs(value - expected);
    if (!(difference <= 1e-6)) return '0';
    if (difference > 1e-12) result = '?';
  }
  for (const auto& [name, value] : right.outputs)
    if (name[0] != 'l' && value != 0 && !found.outputs.contains(name)) return '0';
  return result;
}

int judge_all(std::istream& in, char* path) {
  std::optional<Certificate> original;
  for (std::string line; std::getline(in, line);) {
    if (line == "next") {
      original.reset();
      continue;
    }
    std::string text(std::stoull(line), '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (!original) original = pebbling::parse_certificate(text);
    std::ofstream(path, std::ios::binary) << text;
    std::array<char*, 2> arguments = {path, path};
    const int code = main_of_replay(2, arguments.data());
    std::fflush(stdout);
    char truth = '0';
    try {
      truth = truth_of(text, *original);
    } catch (
        const Error&) {  // NOLINT(bugprone-empty-catch): it cannot be read, or its play is illegal or counts otherwise
    }
    std::cout << "verdict " << code << ' ' << truth << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace redblue::test

int main(int, char** arguments) { return redblue::test::judge_all(std::cin, arguments[1]); }
