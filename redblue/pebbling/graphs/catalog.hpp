#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "redblue/language/words.hpp"
#include "redblue/pebbling/graphs/graph.hpp"

namespace redblue::pebbling {

/// A graph may not have more nodes than this when it comes from a family or a file.
inline constexpr Node kMostNodes = Node{1} << 24;

/// What a parameter of a family is called, says, and may be.
struct Parameter {
  std::string_view name;
  std::string_view what;
  std::string_view standard;  ///< where none is given; empty: one must be given
};
/// The parameters of all families, each once.
std::span<const Parameter> parameters();

/// Values of parameters by name, as texts.
using Arguments = std::map<std::string, std::string>;

struct Family {
  std::string_view name;
  std::string_view what;
  std::vector<std::string_view> parameters;
  Words (*nodes)(const Arguments&);  ///< by formula
  Graph (*make)(const Arguments&);
};
std::span<const Family> families();

struct NamedGraph {
  Graph graph;
  std::string text;     ///< "attention nq=2 nk=3 d=1 dv=1 mask=full sums=fma lse=none"
  std::string problem;  ///< what its outputs are, for a certificate: "forward nq=2 nk=3 d=1 dv=1 mask=full", or "none"
};
/// A graph of a family. Throws Error for a family or parameter that does not exist, one that is missing, a value that
/// it cannot have, and a graph of more than kMostNodes nodes.
NamedGraph make_graph(const std::string& family, const Arguments& arguments);

}  // namespace redblue::pebbling
