#include "redblue/pebbling/graphs/catalog.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"
#include "redblue/language/nearest.hpp"
#include "redblue/pebbling/graphs/attention.hpp"
#include "redblue/pebbling/graphs/families.hpp"

namespace redblue::pebbling {
namespace {

constexpr std::array<Parameter, 19> kParameters = {{
    {"nq", "queries", ""},
    {"nk", "keys", ""},
    {"d", "columns of Q and K", ""},
    {"dv", "columns of V; d if missing", ""},
    {"m", "rows of A", ""},
    {"k", "words that a node adds, or columns of A", ""},
    {"n", "columns of B", ""},
    {"depth", "levels of a tree below its root", ""},
    {"rows", "rows", ""},
    {"columns", "columns", ""},
    {"height", "rows above the lowest", ""},
    {"stages", "stages: 2^stages words", ""},
    {"group", "words of a group", ""},
    {"length", "nodes of the chain", ""},
    {"levels", "levels: matrices of 2^levels rows", ""},
    {"mask", "full, causal, or a row of 0 and 1 for each query: 110/111", "full"},
    {"sums", "fma, chain, tree or k-ary", "fma"},
    {"lse", "none, sink or inner", "none"},
    {"splits", "accumulators of a row", "1"},
}};

/// Sizes up to the number of nodes that a graph may have.
Node size_of(const Arguments& a, const std::string& name, Node least = 1) {
  const std::string& text = a.at(name);
  std::uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value < least || value > kMostNodes)
    throw Error(
        fmt::format("{} = {}; it is a whole number from {} to {}", name, file::printable(text), least, kMostNodes));
  return static_cast<Node>(value);
}

/// A power of two or seven with this exponent is counted, and the graph refused if it has too many nodes.
Node exponent_of(const Arguments& a, const std::string& name) {
  const Node value = size_of(a, name, 0);
  if (value > 24) throw Error(fmt::format("{} = {}; a graph has at most {} nodes", name, value, kMostNodes));
  return value;
}

Sums sums_of(const Arguments& a) { return parse_sums(a.at("sums")); }

/// Throws Error before the mask is asked about more pairs than a graph may have nodes.
Attention attention_of(const Arguments& a) {
  Attention x{size_of(a, "nq"), size_of(a, "nk"), size_of(a, "d"), size_of(a, "dv"), {}};
  if (Words(x.n_q) * x.n_k > kMostNodes)
    throw Error(fmt::format("nq nk = {}; a graph has at most {} nodes", (Words(x.n_q) * x.n_k).str(), kMostNodes));
  x.visible = parse_visible(a.at("mask"), x.n_q, x.n_k);
  if (a.contains("sums")) x.sums = sums_of(a);
  if (a.contains("lse")) x.lse = parse_lse(a.at("lse"));
  return x;
}

std::vector<Family> all_families() {
  std::vector<Family> all;
  all.push_back({"attention",
                 "attention forward, softmax in one pass",
                 {"nq", "nk", "d", "dv", "mask", "sums", "lse"},
                 [](const Arguments& a) { return attention_forward_nodes(attention_of(a)); },
                 [](const Arguments& a) { return attention_forward(attention_of(a)); }});
  all.push_back({"online",
                 "attention forward by online softmax",
                 {"nq", "nk", "d", "dv", "mask", "sums", "lse", "splits"},
                 [](const Arguments& a) { return attention_online_nodes(attention_of(a), size_of(a, "splits")); },
                 [](const Arguments& a) { return attention_online(attention_of(a), size_of(a, "splits")); }});
  all.push_back({"backward",
                 "attention backward: dQ, dK, dV from lse and D",
                 {"nq", "nk", "d", "dv", "mask", "sums"},
                 [](const Arguments& a) { return attention_backward_nodes(attention_of(a)); },
                 [](const Arguments& a) { return attention_backward(attention_of(a)); }});
  all.push_back({"gradient",
                 "the gradient g of Li et al. from A1, A2, A3, X, Y, dO",
                 {"nq", "nk", "d", "dv", "mask", "sums"},
                 [](const Arguments& a) { return attention_gradient_nodes(attention_of(a)); },
                 [](const Arguments& a) { return attention_gradient(attention_of(a)); }});
  all.push_back(
      {"gemm",
       "C = A B",
       {"m", "k", "n", "sums"},
       [](const Arguments& a) { return gemm_nodes(size_of(a, "m"), size_of(a, "k"), size_of(a, "n"), sums_of(a)); },
       [](const Arguments& a) { return gemm(size_of(a, "m"), size_of(a, "k"), size_of(a, "n"), sums_of(a)); }});
  all.push_back({"strassen",
                 "C = A B by Strassen's seven products",
                 {"levels"},
                 [](const Arguments& a) { return strassen_nodes(exponent_of(a, "levels")); },
                 [](const Arguments& a) { return strassen(exponent_of(a, "levels")); }});
  all.push_back(
      {"matrix-vector",
       "y = A x",
       {"rows", "columns", "sums"},
       [](const Arguments& a) { return matrix_vector_nodes(size_of(a, "rows"), size_of(a, "columns"), sums_of(a)); },
       [](const Arguments& a) { return matrix_vector(size_of(a, "rows"), size_of(a, "columns"), sums_of(a)); }});
  all.push_back({"tree",
                 "a complete k-ary tree",
                 {"k", "depth"},
                 [](const Arguments& a) {
                   const Node k = size_of(a, "k");
                   return k_ary_tree_nodes(k, k == 1 ? size_of(a, "depth", 0) : exponent_of(a, "depth"));
                 },
                 [](const Arguments& a) { return k_ary_tree(size_of(a, "k"), size_of(a, "depth", 0)); }});
  all.push_back({"pyramid",
                 "rows of neighbours' sums",
                 {"height"},
                 [](const Arguments& a) { return pyramid_nodes(size_of(a, "height", 0)); },
                 [](const Arguments& a) { return pyramid(size_of(a, "height", 0)); }});
  all.push_back({"grid",
                 "each node from the one above and the one to its left",
                 {"rows", "columns"},
                 [](const Arguments& a) { return grid_nodes(size_of(a, "rows"), size_of(a, "columns")); },
                 [](const Arguments& a) { return grid(size_of(a, "rows"), size_of(a, "columns")); }});
  all.push_back({"fft",
                 "the butterfly of the fast Fourier transform",
                 {"stages"},
                 [](const Arguments& a) { return fft_nodes(exponent_of(a, "stages")); },
                 [](const Arguments& a) { return fft(exponent_of(a, "stages")); }});
  all.push_back({"zipper",
                 "a chain that takes one of two groups of inputs in turn",
                 {"group", "length"},
                 [](const Arguments& a) { return zipper_nodes(size_of(a, "group"), size_of(a, "length")); },
                 [](const Arguments& a) { return zipper(size_of(a, "group"), size_of(a, "length")); }});
  return all;
}

const Family& family_of(const std::string& name) {
  std::vector<std::string_view> names;
  for (const Family& family : families()) {
    if (family.name == name) return family;
    names.push_back(family.name);
  }
  throw Error(fmt::format("there is no family of graphs {}: {}", file::printable(name), choice(name, names)));
}

const Parameter& parameter_of(std::string_view name) {
  return *std::ranges::find(parameters(), name, &Parameter::name);
}

/// The values of all parameters of a family, those that were not given being the standard ones.
Arguments completed(const Family& family, const Arguments& given) {
  for (const auto& [name, value] : given)
    if (std::ranges::find(family.parameters, name) == family.parameters.end())
      throw Error(fmt::format("graph {} has no parameter {}; it has {}", family.name, file::printable(name),
                              fmt::join(family.parameters, ", ")));
  Arguments all = given;
  for (const std::string_view name : family.parameters) {
    if (given.contains(std::string(name))) continue;
    std::string standard(parameter_of(name).standard);
    if (name == "dv" && given.contains("d")) standard = given.at("d");
    if (standard.empty())
      throw Error(fmt::format("graph {} needs {} ({})", family.name, name, parameter_of(name).what));
    all.emplace(name, std::move(standard));
  }
  return all;
}

std::string text_of(std::string_view name, std::span<const std::string_view> names, const Arguments& all) {
  std::string text(name);
  for (const std::string_view parameter : names)
    text += fmt::format(" {}={}", parameter, all.at(std::string(parameter)));
  return text;
}

std::string problem_of(const Family& family, const Arguments& all) {
  const bool forward = family.name == "attention" || family.name == "online";
  if (!forward && family.name != "backward" && family.name != "gradient") return "none";
  constexpr std::array<std::string_view, 5> kSizes = {"nq", "nk", "d", "dv", "mask"};
  return text_of(forward ? "forward" : family.name, kSizes, all);
}

}  // namespace

std::span<const Parameter> parameters() { return kParameters; }

std::span<const Family> families() {
  static const std::vector<Family> all = all_families();
  return all;
}

NamedGraph make_graph(const std::string& name, const Arguments& arguments) {
  const Family& family = family_of(name);
  const Arguments all = completed(family, arguments);
  const Words nodes = family.nodes(all);
  if (nodes > kMostNodes)
    throw Error(fmt::format("graph {} has {} nodes here; {} is the most", family.name, nodes.str(), kMostNodes));
  return {family.make(all), text_of(family.name, family.parameters, all), problem_of(family, all)};
}

}  // namespace redblue::pebbling
