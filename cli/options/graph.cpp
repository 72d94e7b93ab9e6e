#include "options/graph.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"
#include "redblue/pebbling/graphs/dot.hpp"
#include "redblue/pebbling/graphs/hdag.hpp"

namespace redblue::cli {
namespace {

/// A graph of a file. Errors name it.
template <class Parse>
pebbling::NamedGraph graph_of_file(const std::string& path, const Parse& parse) {
  const std::string text = read_text(path);
  try {
    return {parse(text), path, "none"};
  } catch (const Error& e) {
    throw Error(fmt::format("{}: {}", path, e.what()));
  }
}

}  // namespace

std::string read_text(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream in(path, std::ios::binary);
  std::string text;
  if (std::filesystem::is_directory(path)) file::throw_errno("read", path, EISDIR);
  if (!in) file::throw_errno("read", path, errno);
  constexpr std::size_t kPiece = 1 << 20;
  for (std::size_t had = 0; in; had = text.size()) {
    text.resize(had + kPiece);
    in.read(text.data() + had, kPiece);
    text.resize(had + static_cast<std::size_t>(in.gcount()));
    // A device may have no end; what it gives is no text.
    if (const std::size_t at = text.find('\0', had); at != text.npos)
      throw IoError(fmt::format("cannot read '{}': it is no text, for byte {} is zero", path, at + 1), path);
  }
  if (in.bad()) file::throw_errno("read", path, errno);
  return text;
}

void GraphOptions::add_to(const Command& command) {
  std::vector<std::string_view> names;
  for (const pebbling::Family& family : pebbling::families()) names.push_back(family.name);
  command.option("--graph", family_, fmt::format("a family of graphs: {}", fmt::join(names, ", "))).type_name("FAMILY");
  command.option("--hdag", hdag_, "the graph of this file in the format of HyperDAG_DB; - is standard input")
      .type_name("FILE");
  command.option("--dot", dot_, "the graph of this file in the language of Graphviz; - is standard input")
      .type_name("FILE");
  values_.resize(pebbling::parameters().size());
  for (std::size_t k = 0; k < values_.size(); ++k) {
    const pebbling::Parameter& parameter = pebbling::parameters()[k];
    std::vector<std::string_view> of;
    for (const pebbling::Family& family : pebbling::families())
      if (std::ranges::find(family.parameters, parameter.name) != family.parameters.end()) of.push_back(family.name);
    command
        .option(fmt::format("--{}", parameter.name), values_[k],
                fmt::format("{}; of {}", parameter.what, fmt::join(of, ", ")))
        .type_name("VALUE")
        .group("Graphs");
  }
}

std::optional<std::string> GraphOptions::value(std::string_view name) const {
  for (std::size_t k = 0; k < values_.size(); ++k)
    if (pebbling::parameters()[k].name == name) return values_[k];
  return std::nullopt;
}

pebbling::NamedGraph GraphOptions::graph() const {
  if (family_.has_value() + hdag_.has_value() + dot_.has_value() != 1)
    throw Error("a graph comes from one of --graph, --hdag and --dot");
  pebbling::Arguments arguments;
  for (std::size_t k = 0; k < values_.size(); ++k)
    if (values_[k]) arguments.emplace(pebbling::parameters()[k].name, *values_[k]);
  if (family_) return pebbling::make_graph(*family_, arguments);
  if (!arguments.empty())
    throw Error(fmt::format("--{} is of families of graphs, not of files", arguments.begin()->first));
  if (hdag_) return graph_of_file(*hdag_, pebbling::parse_hdag);
  return graph_of_file(*dot_, pebbling::parse_dot);
}

void RulesOptions::add_to(const Command& command) {
  command
      .option(
          "--rules", compute_,
          "place: a computed node gets a pebble of its own; slide: or that of a parent; partial: edges are computed "
          "one by one (default place, of --schedule slide)")
      .one_of({"place", "slide", "partial"})
      .group("Rules");
  command.flag("--once", once_, "each node is computed once (partial computations say so already)");
  command.flag("--unused-inputs", unused_inputs_, "inputs that no node needs are read, too");
  command.option("--processors", processors_, "fast memories of M words each")
      .in_range(1, static_cast<index_t>(pebbling::kMostProcessors))
      .group("Rules");
}

pebbling::Rules RulesOptions::rules(const std::string& standard) const {
  const auto compute = pebbling::parse_rules(compute_.value_or(standard));
  pebbling::Rules rules{compute.compute, compute.recompute && !once_, unused_inputs_, processors_};
  check(rules);
  return rules;
}

}  // namespace redblue::cli
