#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "redblue/pebbling/graphs/catalog.hpp"
#include "redblue/pebbling/referee.hpp"

namespace redblue::test {
namespace {

using pebbling::Graph;
using pebbling::Move;
using pebbling::Node;
using Kind = pebbling::Move::Kind;

/// The backward pass with all scores resident, as docs/pebbling.md describes it, by sliding, with D given.
class ResidentBackward {
 public:
  ResidentBackward(std::size_t n_q, std::size_t n_k, std::size_t d, std::size_t d_v)
      : n_q_(n_q), n_k_(n_k), d_(d), d_v_(d_v), graph_(graph_of(n_q, n_k, d, d_v)) {
    for (Node v = 0; v < graph_.size(); ++v) named_[graph_.name(v)] = v;
  }
  static Graph graph_of(std::size_t n_q, std::size_t n_k, std::size_t d, std::size_t d_v) {
    return pebbling::make_graph("backward", {{"nq", std::to_string(n_q)},
                                             {"nk", std::to_string(n_k)},
                                             {"d", std::to_string(d)},
                                             {"dv", std::to_string(d_v)}})
        .graph;
  }

  pebbling::Cost cost() {
    scores();
    values();
    keys_and_queries();
    pebbling::Referee referee(graph_, pebbling::parse_rules("slide once"), 2 * n_q_ * n_k_ + n_q_ + 1);
    for (const Move& m : moves_) referee.play(m);
    referee.finish();
    return referee.cost();
  }

 private:
  static std::string at(const char* name, std::size_t i, std::size_t j) { return fmt::format("{}[{},{}]", name, i, j); }
  static std::string at(const char* name, std::size_t i) { return fmt::format("{}[{}]", name, i); }
  void add(Kind kind, const std::string& node) { moves_.push_back({kind, named_.at(node)}); }
  void slide(const std::string& node, const std::string& from) {
    moves_.push_back({Kind::slide, named_.at(node), named_.at(from)});
  }
  /// Makes term `t` of a sum of `terms` terms.
  void add_term(const std::string& sum, std::size_t terms, std::size_t t) {
    const auto part = [&](std::size_t k) { return k + 1 == terms ? sum : fmt::format("{}+{}", sum, k); };
    if (t == 0)
      add(Kind::compute, part(0));
    else
      slide(part(t), part(t - 1));
  }
  void column(Kind kind, const char* name, std::size_t t) {
    for (std::size_t i = 0; i < n_q_; ++i) add(kind, at(name, i, t));
  }
  void write_and_remove(const std::string& node) {
    add(Kind::write, node);
    add(Kind::remove, node);
  }

  void scores() {
    for (std::size_t t = 0; t < d_; ++t) {
      column(Kind::read, "Q", t);
      for (std::size_t j = 0; j < n_k_; ++j) {
        add(Kind::read, at("K", j, t));
        for (std::size_t i = 0; i < n_q_; ++i) add_term(at("s", i, j), d_, t);
        add(Kind::remove, at("K", j, t));
      }
      column(Kind::remove, "Q", t);
    }
    for (std::size_t i = 0; i < n_q_; ++i) {
      add(Kind::read, at("lse", i));
      for (std::size_t j = 0; j < n_k_; ++j) slide(at("p", i, j), at("s", i, j));
      add(Kind::remove, at("lse", i));
    }
  }
  void values() {
    for (std::size_t t = 0; t < d_v_; ++t) {
      column(Kind::read, "dO", t);
      for (std::size_t j = 0; j < n_k_; ++j) {
        for (std::size_t i = 0; i < n_q_; ++i) add_term(at("dV", j, t), n_q_, i);
        write_and_remove(at("dV", j, t));
        add(Kind::read, at("V", j, t));
        for (std::size_t i = 0; i < n_q_; ++i) add_term(at("dp", i, j), d_v_, t);
        add(Kind::remove, at("V", j, t));
      }
      column(Kind::remove, "dO", t);
    }
    for (std::size_t i = 0; i < n_q_; ++i) {
      add(Kind::read, at("D", i));
      for (std::size_t j = 0; j < n_k_; ++j) {
        slide(at("ds", i, j), at("dp", i, j));
        add(Kind::remove, at("p", i, j));
      }
      add(Kind::remove, at("D", i));
    }
  }
  void keys_and_queries() {
    for (std::size_t t = 0; t < d_; ++t) {
      column(Kind::read, "Q", t);
      for (std::size_t j = 0; j < n_k_; ++j) {
        for (std::size_t i = 0; i < n_q_; ++i) add_term(at("dK", j, t), n_q_, i);
        write_and_remove(at("dK", j, t));
        add(Kind::read, at("K", j, t));
        for (std::size_t i = 0; i < n_q_; ++i) add_term(at("dQ", i, t), n_k_, j);
        add(Kind::remove, at("K", j, t));
      }
      for (std::size_t i = 0; i < n_q_; ++i) write_and_remove(at("dQ", i, t));
      column(Kind::remove, "Q", t);
    }
  }

  std::size_t n_q_, n_k_, d_, d_v_;
  Graph graph_;
  std::map<std::string, Node> named_;
  std::vector<Move> moves_;
};

TEST(ResidentScores, ABackwardPassMovesWhatItsFormulaSays) {
  for (const auto& [n_q, n_k, d, d_v] :
       {std::array<std::size_t, 4>{2, 2, 1, 1}, {2, 3, 2, 1}, {3, 2, 1, 4}, {3, 4, 5, 2}, {8, 8, 16, 16}}) {
    const pebbling::Cost cost = ResidentBackward(n_q, n_k, d, d_v).cost();
    EXPECT_EQ(cost.io(), 3 * (n_q + n_k) * d + n_q * d_v + 2 * n_k * d_v + 2 * n_q);
    EXPECT_EQ(cost.peak, 2 * n_q * n_k + n_q + 1);
  }
}

}  // namespace
}  // namespace redblue::test
