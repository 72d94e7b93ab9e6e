#include "redblue/pebbling/search/processors.hpp"

#include <array>
#include <map>
#include <numeric>

#include "redblue/pebbling/search/recompute.hpp"

namespace redblue::pebbling {

Processors::Processors(const Board& board, int M, bool slide, bool recompute, std::size_t processors)
    : board_(board),
      M_(M),
      slide_(slide),
      recompute_(recompute),
      processors_(processors),
      ancestors_(ancestors_of(board)) {}

Set Processors::useful(Set done) const {
  if (!recompute_) return board_.computed & ~done;
  Set result = 0;
  for_each(board_.outputs & ~done, [&](std::size_t o) { result |= ancestors_[o]; });
  return result & board_.computed;
}

void Processors::settle(Position& p) const {
  const Set to_compute = useful(p.done);
  Set live = 0;
  for (std::size_t x = 0; x < board_.size(); ++x)
    if ((board_.children[x] & to_compute) != 0) live |= only(x);
  for (std::size_t k = 0; k < processors_; ++k) p.red &= ~at(k, red_of(p, k) & ~live);
  if (recompute_) p.done &= live | board_.outputs;
  p.clean &= live;
  const Set red = red_anywhere(p);
  std::array<int, kMostOnBoard> price{};
  p.ahead = 0;
  for (std::size_t x = 0; x < board_.size(); ++x) {
    price[x] = std::min(price_of_reading(p, x), 1 << 20);
    if (!recompute_ && (live & p.done & ~red & only(x)) != 0) p.ahead += price[x];  // it must be read for a child
  }
  if (recompute_) p.ahead = least_price_of_reads(board_, red, price, board_.outputs & ~p.done);
}

int Processors::gap(const Position& a, const Position& b, int most) const {
  int total = 0;
  for (Set s = b.red & ~a.red; s != 0 && total <= most; s &= s - 1)
    total += price_of_reading(a, first_of(s) % board_.size());
  return total + number_in(b.clean & ~a.clean);
}

std::vector<Symmetry> symmetries_of_places(const Board& b, std::size_t processors, std::size_t most) {
  std::vector<std::vector<std::size_t>> of_nodes(1);
  of_nodes[0].resize(b.size());
  std::iota(of_nodes[0].begin(), of_nodes[0].end(), std::size_t{0});
  for (const Symmetry& s : symmetries_of(b, most)) {
    std::vector<std::size_t>& image = of_nodes.emplace_back();
    for (std::size_t v = 0; v < b.size(); ++v) image.push_back(s.nodes.of(v));
  }
  std::vector<Symmetry> result;
  for (std::size_t k = 0; k < of_nodes.size(); ++k) {
    std::vector<std::size_t> order(processors);
    std::iota(order.begin(), order.end(), std::size_t{0});
    bool changes = k > 0;
    do {
      if (changes && result.size() < most) {
        std::vector<std::size_t> places;
        for (const std::size_t processor : order)
          for (const std::size_t v : of_nodes[k]) places.push_back(processor * b.size() + v);
        result.push_back({Renaming(std::move(places)), Renaming(of_nodes[k])});
      }
      changes = true;
    } while (result.size() < most && std::ranges::next_permutation(order).found);
  }
  return result;
}

std::vector<Move> moves_of_processors(const Board& b, std::span<const Step> steps) {
  const auto needed_after = [&](std::size_t k, std::size_t processor, std::size_t x) {
    for (std::size_t j = k + 1; j < steps.size(); ++j) {
      if (steps[j].node / b.size() != processor) continue;
      const std::size_t v = steps[j].node % b.size();
      if ((b.parents[v] & only(x)) != 0) return true;
      if (v == x) return false;
    }
    return false;
  };
  std::vector<Move> without_writes;
  std::map<std::size_t, Set> red;
  Set blue = b.outputs;  // at the end
  for (std::size_t k = 0; k < steps.size(); ++k) {
    const std::size_t processor = steps[k].node / b.size(), v = steps[k].node % b.size();
    Set& mine = red[processor];
    const auto add = [&](Move::Kind kind, std::size_t node, std::size_t parent = 0) {
      without_writes.push_back(
          {kind, static_cast<Node>(node), static_cast<Node>(parent), static_cast<std::uint16_t>(processor)});
    };
    for_each(steps[k].evicted, [&](std::size_t place) {
      const std::size_t x = place % b.size();
      if ((mine & only(x)) != 0) add(Move::Kind::remove, x);
      mine &= ~only(x);
    });
    for_each(b.parents[v] & ~mine, [&](std::size_t x) {
      add(Move::Kind::read, x);
      blue |= only(x);
    });
    mine |= b.parents[v] | only(v);
    if (steps[k].parent == kNone) {
      add(Move::Kind::compute, v);
    } else {
      add(Move::Kind::slide, v, steps[k].parent % b.size());
      mine &= ~only(steps[k].parent % b.size());
    }
    for_each(mine, [&](std::size_t x) {
      if (needed_after(k, processor, x)) return;
      add(Move::Kind::remove, x);
      mine &= ~only(x);
    });
  }
  std::vector<Move> moves;
  Set written = b.inputs;
  for (const Move& m : without_writes) {
    const bool computes = m.kind == Move::Kind::compute || m.kind == Move::Kind::slide;
    moves.push_back({m.kind, b.nodes[m.node], m.kind == Move::Kind::slide ? b.nodes[m.parent] : 0, m.processor});
    if (!computes || (blue & ~written & only(m.node)) == 0) continue;
    moves.push_back({Move::Kind::write, b.nodes[m.node], 0, m.processor});
    written |= only(m.node);
  }
  return moves;
}

}  // namespace redblue::pebbling
