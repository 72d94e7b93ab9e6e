#pragma once
#include <functional>
#include <string>
#include <vector>

#include "redblue/language/words.hpp"
#include "redblue/pebbling/graphs/graph.hpp"
#include "redblue/pebbling/graphs/sums.hpp"

/// Graphs of attention at the granularity of single words. The scale 1/sqrt(d) is the constant k of the products in the
/// scores. Names of inputs: Q[i,t], K[j,t], V[j,t], dO[i,t], lse[i], D[i]; of outputs: O[i,t], lse[i], dQ[i,t],
/// dK[j,t], dV[j,t]. Outputs of queries that see no key, and of keys that no query sees, are not in the graph: they are
/// constants.
namespace redblue::pebbling {

/// Does query i see key j?
using Visible = std::function<bool(Node, Node)>;
/// "full", "causal" (j <= i + n_k - n_q), or a row of 0 and 1 for each query, such as 110/111. Throws Error.
Visible parse_visible(const std::string& text, Node n_q, Node n_k);

/// What a graph says of the sums of exponentials.
enum class Lse {
  none,   ///< nothing
  sink,   ///< lse[i], their logarithm, is an output and a node of its own
  inner,  ///< they are outputs themselves, named l[i], which the quotients need, too
};
std::string_view name_of(Lse lse);
Lse parse_lse(const std::string& name);

struct Attention {
  Node n_q;
  Node n_k;
  Node d;
  Node d_v;
  Visible visible;
  Sums sums = Sums::fma;
  Lse lse = Lse::none;
};

/// How many keys each query sees, and how many queries each key.
struct Visibility {
  explicit Visibility(const Attention& x);
  std::vector<Words> of_query;
  std::vector<Words> of_key;
  Words pairs = 0;
};

/// O = softmax(Q K^T) V with exponentials that nothing holds down: s, exp(s), their sum, products with V, quotients.
Graph attention_forward(const Attention& x);
Words attention_forward_nodes(const Attention& x);

/// The same by online softmax: each row has `splits` accumulators (m, l, O) that take its keys one by one, those of a
/// split being neighbours, and that are merged pair by pair at the end.
Graph attention_online(const Attention& x, Node splits);
Words attention_online_nodes(const Attention& x, Node splits);

/// dQ, dK, dV from Q, K, V, dO, lse and D (the row sums of dO O). With Sums::fma dS = P (dP - D) is one node, else two.
Graph attention_backward(const Attention& x);
Words attention_backward_nodes(const Attention& x);

/// The gradient g = A1^T (P (dP - D)) A2 of Li et al. (arXiv 2410.09397) with respect to X, where S = A1 X A2^T and
/// V = A3 Y; inputs A1[i,t], A2[j,t], A3[j,t], X[t,u], Y[t,u], dO[i,t], outputs g[t,u]. The scale is 1.
Graph attention_gradient(const Attention& x);
Words attention_gradient_nodes(const Attention& x);

}  // namespace redblue::pebbling
