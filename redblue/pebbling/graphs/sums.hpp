#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "redblue/language/words.hpp"
#include "redblue/pebbling/graphs/graph.hpp"

namespace redblue::pebbling {

/// How a graph adds.
enum class Sums {
  fma,    ///< each product is added to the sum before it by the node that makes it; the first is a product alone
  chain,  ///< products are nodes, and additions one after another
  tree,   ///< products are nodes, and additions a binary tree: neighbours first
  k_ary,  ///< products are nodes, and one node adds all of them
};
std::string_view name_of(Sums sums);
/// Throws Error for a name that none has.
Sums parse_sums(const std::string& name);

struct Factors {
  Node a;
  Node b;
};

/// of_term(0), of_term(1), ..: as many as `number`.
template <class F>
std::vector<Factors> factors(std::size_t number, const F& of_term) {
  std::vector<Factors> terms(number);
  for (std::size_t k = 0; k < number; ++k) terms[k] = of_term(k);
  return terms;
}

/// The sum of k a b over these, of which there is at least one. The last node gets the name, the others `name` with a
/// mark: the third product is name*2, the sum that it ends name+2.
Node add_products(Graph& g, Sums sums, std::span<const Factors> terms, const std::string& name, double k = 1);
/// The sum of these, of which there is at least one: of one, that node, as it is.
Node add_sum(Graph& g, Sums sums, std::span<const Node> terms, const std::string& name);

/// The number of nodes that these add for this number of terms.
Words products_nodes(Sums sums, Words terms);
Words sum_nodes(Sums sums, Words terms);

}  // namespace redblue::pebbling
