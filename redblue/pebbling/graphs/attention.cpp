#include "redblue/pebbling/graphs/attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"
#include "redblue/language/nearest.hpp"
#include "redblue/pebbling/graphs/attention_builder.hpp"

namespace redblue::pebbling {
namespace {

constexpr std::array<std::string_view, 3> kLse = {"none", "sink", "inner"};

/// What online softmax keeps of a row.
struct Accumulator {
  Node m = 0;
  Node l = 0;
  std::vector<Node> O{};
};

class Online {
 public:
  Online(AttentionBuilder& b, Node row) : b_(b), row_(row) {}

  Accumulator first(Node score, Node key) {
    const Node p = b_.graph.add(Op::exp, {score, score}, name("p", key));
    Accumulator acc{score, p, {}};
    for (Node t = 0; t < b_.x.d_v; ++t)
      acc.O.push_back(b_.graph.add(Op::product, {p, b_.V[key][t]}, name("pV", key, t)));
    return acc;
  }

  Accumulator take(const Accumulator& acc, Node score, Node key) {
    Graph& g = b_.graph;
    const Node m = g.add(Op::maximum, {acc.m, score}, name("m", key));
    const Node alpha = g.add(Op::exp, {acc.m, m}, name("alpha", key));
    const Node p = g.add(Op::exp, {score, m}, name("p", key));
    Accumulator next{m, rescaled(alpha, acc.l, p), {}};
    for (Node t = 0; t < b_.x.d_v; ++t) {
      const Factors terms[2] = {{alpha, acc.O[t]}, {p, b_.V[key][t]}};
      next.O.push_back(add_products(g, two_terms(), terms, name("O", key, t)));
    }
    return next;
  }

  Accumulator merge(const Accumulator& a, const Accumulator& b) {
    Graph& g = b_.graph;
    const Node number = merged_++;
    const Node m = g.add(Op::maximum, {a.m, b.m}, name("M", number));
    const Node from_a = g.add(Op::exp, {a.m, m}, name("alphaA", number));
    const Node from_b = g.add(Op::exp, {b.m, m}, name("alphaB", number));
    const auto joined = [&](Node x, Node y, const std::string& called) {
      const Factors terms[2] = {{from_a, x}, {from_b, y}};
      return add_products(g, two_terms(), terms, called);
    };
    Accumulator both{m, joined(a.l, b.l, name("L", number)), {}};
    for (Node t = 0; t < b_.x.d_v; ++t) both.O.push_back(joined(a.O[t], b.O[t], name("OM", number, t)));
    return both;
  }

 private:
  /// A tree and a k-ary sum of two terms are chains.
  Sums two_terms() const { return b_.x.sums == Sums::fma ? Sums::fma : Sums::chain; }
  Node rescaled(Node alpha, Node l, Node p) {
    if (b_.x.sums == Sums::fma) return b_.graph.add(Op::multiply_add, {p, alpha, l});
    return b_.graph.add(Op::sum, {b_.graph.add(Op::product, {alpha, l}), p});
  }
  std::string name(const char* what, Node k) const { return fmt::format("{}[{},{}]", what, row_, k); }
  std::string name(const char* what, Node k, Node t) const { return fmt::format("{}[{},{},{}]", what, row_, k, t); }

  AttentionBuilder& b_;
  Node row_;
  Node merged_ = 0;
};

Words splits_of(Words splits, Words keys) { return std::min(splits, keys); }

}  // namespace

Visible parse_visible(const std::string& text, Node n_q, Node n_k) {
  if (text == "full") return [](Node, Node) { return true; };
  if (text == "causal") return [n_q, n_k](Node i, Node j) { return std::uint64_t{j} + n_q <= std::uint64_t{i} + n_k; };
  if (text.find_first_not_of("01/") != std::string::npos)
    throw Error(fmt::format("mask = {}; it is full, causal, or a row of 0 and 1 for each query, such as 110/111",
                            file::printable(text)));
  const std::uint64_t row = std::uint64_t{n_k} + 1;
  bool fits = text.size() + 1 == row * n_q;
  for (std::size_t at = 0; fits && at < text.size(); ++at) fits = (text[at] == '/') == (at % row == n_k);
  if (!fits) throw Error(fmt::format("mask = {} has not {} rows of {} keys", file::printable(text), n_q, n_k));
  return [text, row](Node i, Node j) { return text[i * row + j] == '1'; };
}

std::string_view name_of(Lse lse) { return kLse[static_cast<std::size_t>(lse)]; }

Lse parse_lse(const std::string& name) {
  const auto* const found = std::ranges::find(kLse, name);
  if (found == kLse.end())
    throw Error(fmt::format("lse = {}: {}", file::printable(name), choice(name, {kLse.begin(), kLse.end()})));
  return static_cast<Lse>(found - kLse.begin());
}

Visibility::Visibility(const Attention& x) : of_query(x.n_q), of_key(x.n_k) {
  for (Node i = 0; i < x.n_q; ++i)
    for (Node j = 0; j < x.n_k; ++j)
      if (x.visible(i, j)) {
        of_query[i] += 1;
        of_key[j] += 1;
        pairs += 1;
      }
}

Graph attention_forward(const Attention& x) {
  AttentionBuilder b(x);
  Graph& g = b.graph;
  b.add_inputs_of_forward();
  for (Node i = 0; i < x.n_q; ++i) {
    const std::vector<Node> keys = b.keys_of(i);
    if (keys.empty()) continue;
    const bool alone = keys.size() == 1 && x.lse == Lse::inner;
    std::vector<Node> weights;
    weights.reserve(keys.size());
    for (const Node j : keys)
      weights.push_back(g.add(Op::exp, {b.score(b.Q[i], b.K[j], fmt::format("s[{},{}]", i, j))},
                              alone ? fmt::format("l[{}]", i) : fmt::format("e[{},{}]", i, j)));
    const Node l = add_sum(g, x.sums, weights, fmt::format("l[{}]", i));
    if (x.lse == Lse::inner) g.mark_output(l);
    for (Node t = 0; t < x.d_v; ++t) {
      const auto terms = factors(keys.size(), [&](std::size_t k) { return Factors{weights[k], b.V[keys[k]][t]}; });
      const Node sum = add_products(g, x.sums, terms, fmt::format("a[{},{}]", i, t));
      g.mark_output(g.add(Op::quotient, {sum, l}, fmt::format("O[{},{}]", i, t)));
    }
    if (x.lse == Lse::sink) g.mark_output(g.add(Op::log, {l}, fmt::format("lse[{}]", i)));
  }
  return b.finished();
}

Words attention_forward_nodes(const Attention& x) {
  const Visibility pairs(x);
  Words nodes = Words(x.n_q) * x.d + Words(x.n_k) * (Words(x.d) + x.d_v);
  nodes += pairs.pairs * (products_nodes(x.sums, x.d) + 1);
  for (const Words keys : pairs.of_query)
    if (keys > 0) {
      nodes += sum_nodes(x.sums, keys) + Words(x.d_v) * (products_nodes(x.sums, keys) + 1);
      if (x.lse == Lse::sink) nodes += 1;
    }
  return nodes;
}

Graph attention_online(const Attention& x, Node splits) {
  if (x.lse == Lse::inner) throw Error("lse = inner: online attention has lse = sink or none");
  AttentionBuilder b(x);
  Graph& g = b.graph;
  b.add_inputs_of_forward();
  for (Node i = 0; i < x.n_q; ++i) {
    const std::vector<Node> keys = b.keys_of(i);
    if (keys.empty()) continue;
    Online online(b, i);
    std::vector<Accumulator> parts;
    const std::size_t number = std::min<std::size_t>(splits, keys.size());
    for (std::size_t part = 0; part < number; ++part) {
      const std::size_t begin = part * keys.size() / number;
      const std::size_t end = (part + 1) * keys.size() / number;
      Accumulator acc;
      for (std::size_t k = begin; k < end; ++k) {
        const Node score = b.score(b.Q[i], b.K[keys[k]], fmt::format("s[{},{}]", i, keys[k]));
        acc = k == begin ? online.first(score, keys[k]) : online.take(acc, score, keys[k]);
      }
      parts.push_back(acc);
    }
    while (parts.size() > 1) {
      std::vector<Accumulator> next;
      for (std::size_t k = 0; k + 1 < parts.size(); k += 2) next.push_back(online.merge(parts[k], parts[k + 1]));
      if (parts.size() % 2 == 1) next.push_back(parts.back());
      parts = std::move(next);
    }
    for (Node t = 0; t < x.d_v; ++t)
      g.mark_output(g.add(Op::quotient, {parts[0].O[t], parts[0].l}, fmt::format("O[{},{}]", i, t)));
    if (x.lse == Lse::sink)
      g.mark_output(g.add(Op::sum, {parts[0].m, g.add(Op::log, {parts[0].l})}, fmt::format("lse[{}]", i)));
  }
  return b.finished();
}

Words attention_online_nodes(const Attention& x, Node splits) {
  const Visibility pairs(x);
  const Words two = products_nodes(x.sums == Sums::fma ? Sums::fma : Sums::chain, 2);
  Words nodes = Words(x.n_q) * x.d + Words(x.n_k) * (Words(x.d) + x.d_v);
  nodes += pairs.pairs * products_nodes(x.sums, x.d);
  for (const Words keys : pairs.of_query)
    if (keys > 0) {
      const Words parts = splits_of(splits, keys);
      nodes += parts * (Words(1) + x.d_v);                           // first keys: p, p V
      nodes += (keys - parts) * (two + 2 + Words(x.d_v) * two);      // m, alpha, p, l, O
      nodes += (parts - 1) * (Words(3) + two * (Words(1) + x.d_v));  // m, two factors, l, O
      nodes += Words(x.d_v) + (x.lse == Lse::sink ? 2 : 0);
    }
  return nodes;
}

}  // namespace redblue::pebbling
