#include "redblue/pebbling/graphs/sums.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"
#include "redblue/language/nearest.hpp"

namespace redblue::pebbling {
namespace {

constexpr std::array<std::string_view, 4> kSums = {"fma", "chain", "tree", "k-ary"};

Node add_chain(Graph& g, std::span<const Node> terms, const std::string& name) {
  Node sum = terms[0];
  for (std::size_t k = 1; k < terms.size(); ++k)
    sum = g.add(Op::sum, {sum, terms[k]}, k + 1 == terms.size() ? name : fmt::format("{}+{}", name, k));
  return sum;
}

Node add_tree(Graph& g, std::span<const Node> terms, const std::string& name) {
  std::vector<Node> level(terms.begin(), terms.end());
  for (std::size_t made = 0; level.size() > 1;) {
    std::vector<Node> next;
    for (std::size_t k = 0; k + 1 < level.size(); k += 2)
      next.push_back(
          g.add(Op::sum, {level[k], level[k + 1]}, level.size() == 2 ? name : fmt::format("{}+{}", name, ++made)));
    if (level.size() % 2 == 1) next.push_back(level.back());
    level = std::move(next);
  }
  return level[0];
}

}  // namespace

std::string_view name_of(Sums sums) { return kSums[static_cast<std::size_t>(sums)]; }

Sums parse_sums(const std::string& name) {
  const auto* const found = std::ranges::find(kSums, name);
  if (found == kSums.end())
    throw Error(fmt::format("sums = {}: {}", file::printable(name), choice(name, {kSums.begin(), kSums.end()})));
  return static_cast<Sums>(found - kSums.begin());
}

Node add_products(Graph& g, Sums sums, std::span<const Factors> terms, const std::string& name, double k) {
  const bool one = terms.size() == 1;
  if (sums == Sums::fma) {
    Node sum = 0;
    for (std::size_t t = 0; t < terms.size(); ++t) {
      const std::string called = t + 1 == terms.size() ? name : fmt::format("{}+{}", name, t);
      sum = t == 0 ? g.add(Op::product, {terms[t].a, terms[t].b}, called, k)
                   : g.add(Op::multiply_add, {sum, terms[t].a, terms[t].b}, called, k);
    }
    return sum;
  }
  std::vector<Node> products;
  for (const Factors& term : terms)
    products.push_back(
        g.add(Op::product, {term.a, term.b}, one ? name : fmt::format("{}*{}", name, products.size()), k));
  return add_sum(g, sums, products, name);
}

Node add_sum(Graph& g, Sums sums, std::span<const Node> terms, const std::string& name) {
  if (terms.size() == 1) return terms[0];
  switch (sums) {
    case Sums::fma:
    case Sums::chain:
      return add_chain(g, terms, name);
    case Sums::tree:
      return add_tree(g, terms, name);
    case Sums::k_ary:
      return g.add(Op::sum, terms, name);
  }
  throw Error("a way to add that does not exist");
}

Words products_nodes(Sums sums, Words terms) {
  return sums == Sums::fma || terms == 0 ? terms : terms + sum_nodes(sums, terms);
}

Words sum_nodes(Sums sums, Words terms) {
  if (terms <= 1) return 0;
  return sums == Sums::k_ary ? Words(1) : terms - 1;
}

}  // namespace redblue::pebbling
