#include "redblue/pebbling/graphs/attention.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "pebbling/values.hpp"
#include "redblue/pebbling/graphs/catalog.hpp"

namespace redblue::test {
namespace {

using pebbling::Attention;
using pebbling::Graph;
using pebbling::Lse;
using pebbling::Node;
using pebbling::Sums;

/// With a mask of which at least one pair is seen.
Attention any_attention() {
  Attention x{*rc::gen::inRange<Node>(1, 5),
              *rc::gen::inRange<Node>(1, 6),
              *rc::gen::inRange<Node>(1, 4),
              *rc::gen::inRange<Node>(1, 4),
              {},
              *rc::gen::element(Sums::fma, Sums::chain, Sums::tree, Sums::k_ary)};
  std::string mask;
  for (Node i = 0; i < x.n_q; ++i) {
    if (i > 0) mask += '/';
    for (Node j = 0; j < x.n_k; ++j) mask += *rc::gen::element('0', '1', '1', '1');
  }
  if (mask.find('1') == std::string::npos) mask.back() = '1';
  x.visible = pebbling::parse_visible(*rc::gen::element<std::string>("full", "causal", mask), x.n_q, x.n_k);
  if (pebbling::Visibility(x).pairs == 0) x.visible = pebbling::parse_visible("full", x.n_q, x.n_k);
  return x;
}

/// Softmax of given scores from its definition: O, lse, P; and dS for given values, in plain loops.
struct Softmax {
  std::vector<double> p;
  double lse = 0;
  std::vector<bool> seen;
  Softmax(const Attention& x, Node i, const std::function<double(Node)>& score) : p(x.n_k), seen(x.n_k) {
    double sum = 0;
    for (Node j = 0; j < x.n_k; ++j) {
      seen[j] = x.visible(i, j);
      if (seen[j]) sum += p[j] = std::exp(score(j));
    }
    for (double& value : p) value /= sum;
    lse = std::log(sum);
  }
  bool blind() const { return std::find(seen.begin(), seen.end(), true) == seen.end(); }
};

double dot(Node d, const std::function<double(Node)>& a, const std::function<double(Node)>& b) {
  double sum = 0;
  for (Node t = 0; t < d; ++t) sum += a(t) * b(t);
  return sum;
}
std::function<double(Node)> row(const char* name, Node i) {
  return [=](Node t) { return Values::input(name, i, t); };
}

void expect_forward(const Attention& x, const Graph& g) {
  const Values values(g);
  RC_ASSERT(values.repeated_names() == 0);
  std::size_t outputs = 0;
  for (Node i = 0; i < x.n_q; ++i) {
    const Softmax s(x, i, [&](Node j) { return dot(x.d, row("Q", i), row("K", j)) / std::sqrt(x.d); });
    for (Node t = 0; t < x.d_v; ++t) {
      RC_ASSERT(values.has("O", i, t) == !s.blind());
      if (s.blind()) continue;
      ++outputs;
      const double o = dot(x.n_k, [&](Node j) { return s.p[j]; }, [&](Node j) { return Values::input("V", j, t); });
      RC_ASSERT(std::abs(values.at("O", i, t) - o) < 1e-13);
    }
    if (s.blind() || x.lse == Lse::none) continue;
    ++outputs;
    const double lse =
        x.lse == Lse::sink ? values.at(fmt::format("lse[{}]", i)) : std::log(values.at(fmt::format("l[{}]", i)));
    RC_ASSERT(std::abs(lse - s.lse) < 1e-13);
  }
  RC_ASSERT(values.outputs().size() == outputs);
}

RC_GTEST_PROP(AttentionGraph, forward_computes_attention, ()) {
  Attention x = any_attention();
  x.lse = *rc::gen::element(Lse::none, Lse::sink, Lse::inner);
  const Graph g = pebbling::attention_forward(x);
  RC_ASSERT(Words(g.size()) == pebbling::attention_forward_nodes(x));
  expect_forward(x, g);
}

RC_GTEST_PROP(AttentionGraph, online_computes_attention, ()) {
  Attention x = any_attention();
  x.lse = *rc::gen::element(Lse::none, Lse::sink);
  const auto splits = *rc::gen::inRange<Node>(1, 5);
  const Graph g = pebbling::attention_online(x, splits);
  RC_ASSERT(Words(g.size()) == pebbling::attention_online_nodes(x, splits));
  expect_forward(x, g);
}

RC_GTEST_PROP(AttentionGraph, backward_computes_gradients, ()) {
  const Attention x = any_attention();
  const Graph g = pebbling::attention_backward(x);
  RC_ASSERT(Words(g.size()) == pebbling::attention_backward_nodes(x));
  const Values values(g);
  RC_ASSERT(values.repeated_names() == 0);
  const double scale = 1 / std::sqrt(x.d);
  // lse and D are inputs like all others here: the formulas hold for any.
  const auto p = [&](Node i, Node j) {
    if (!x.visible(i, j)) return 0.0;
    return std::exp(scale * dot(x.d, row("Q", i), row("K", j)) - Values::input(fmt::format("lse[{}]", i)));
  };
  const auto ds = [&](Node i, Node j) {
    return p(i, j) * (dot(x.d_v, row("dO", i), row("V", j)) - Values::input(fmt::format("D[{}]", i)));
  };
  std::size_t outputs = 0;
  const auto check = [&](const char* name, Node r, Node t, double expected) {
    if (!values.has(name, r, t)) {
      RC_ASSERT(expected == 0);
      return;
    }
    ++outputs;
    RC_ASSERT(std::abs(values.at(name, r, t) - expected) < 1e-12);
  };
  for (Node j = 0; j < x.n_k; ++j) {
    for (Node t = 0; t < x.d_v; ++t)
      check("dV", j, t, dot(x.n_q, [&](Node i) { return p(i, j); }, [&](Node i) { return Values::input("dO", i, t); }));
    for (Node t = 0; t < x.d; ++t)
      check("dK", j, t,
            scale * dot(x.n_q, [&](Node i) { return ds(i, j); }, [&](Node i) { return Values::input("Q", i, t); }));
  }
  for (Node i = 0; i < x.n_q; ++i)
    for (Node t = 0; t < x.d; ++t)
      check("dQ", i, t,
            scale * dot(x.n_k, [&](Node j) { return ds(i, j); }, [&](Node j) { return Values::input("K", j, t); }));
  RC_ASSERT(values.outputs().size() == outputs);
}

/// By differences of the loss sum(dO O), entry by entry of X.
RC_GTEST_PROP(AttentionGraph, gradient_is_that_of_the_loss, ()) {
  const Attention x = any_attention();
  const Graph g = pebbling::attention_gradient(x);
  RC_ASSERT(Words(g.size()) == pebbling::attention_gradient_nodes(x));
  const Values values(g);
  RC_ASSERT(values.repeated_names() == 0);
  const auto loss = [&](Node row_of_x, Node column, double change) {
    const auto X = [&](Node t, Node u) {
      return Values::input("X", t, u) + (t == row_of_x && u == column ? change : 0);
    };
    double sum = 0;
    for (Node i = 0; i < x.n_q; ++i) {
      const Softmax s(x, i, [&](Node j) {
        return dot(x.d, row("A2", j), [&](Node u) { return dot(x.d, row("A1", i), [&](Node t) { return X(t, u); }); });
      });
      if (s.blind()) continue;
      for (Node t = 0; t < x.d_v; ++t)
        sum += Values::input("dO", i, t) *
               dot(
                   x.n_k, [&](Node j) { return s.p[j]; },
                   [&](Node j) { return dot(x.d, row("A3", j), [&](Node u) { return Values::input("Y", u, t); }); });
    }
    return sum;
  };
  for (Node t = 0; t < x.d; ++t)
    for (Node u = 0; u < x.d; ++u) {
      const double h = 1e-4;
      RC_ASSERT(std::abs(values.at("g", t, u) - (loss(t, u, h) - loss(t, u, -h)) / (2 * h)) < 1e-5);
    }
  RC_ASSERT(values.outputs().size() == std::size_t{x.d} * x.d);
}

TEST(AttentionGraph, has_the_sizes_of_the_theory) {
  const auto nodes = [](const char* family, const char* n, const char* d, const char* sums) {
    return pebbling::make_graph(family, {{"nq", n}, {"nk", n}, {"d", d}, {"sums", sums}}).graph.size();
  };
  EXPECT_EQ(nodes("attention", "2", "1", "fma"), 22U);
  EXPECT_EQ(nodes("attention", "2", "1", "chain"), 24U);
  EXPECT_EQ(nodes("attention", "3", "1", "fma"), 45U);
  EXPECT_EQ(nodes("attention", "3", "1", "chain"), 51U);
  EXPECT_EQ(nodes("attention", "2", "2", "fma"), 38U);
  EXPECT_EQ(nodes("backward", "2", "1", "fma"), 40U);
}

}  // namespace
}  // namespace redblue::test
