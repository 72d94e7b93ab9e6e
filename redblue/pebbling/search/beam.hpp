#pragma once
#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "redblue/pebbling/search/board.hpp"
#include "redblue/pebbling/search/search.hpp"

namespace redblue::pebbling {

/// A play that is found fast, and its excess: of the positions with equally many things computed, only the `width`
/// cheapest are followed. For games whose `done` grows with each step.
template <class Game>
std::optional<std::pair<int, std::vector<Step>>> beam_search(const Game& game, std::size_t width) {
  struct Entry {
    Position position;
    int paid;
    std::size_t parent;
    std::vector<Step> steps;
  };
  std::vector<std::vector<Entry>> layers(kMostOnBoard + 1);
  std::vector<Entry> kept;
  const auto add = [&](Entry e) {
    layers[static_cast<std::size_t>(number_in(e.position.done))].push_back(std::move(e));
  };
  Entry first{game.start(), 0, kNone, {}};
  game.close(first.position, &first.steps);
  add(std::move(first));
  for (std::vector<Entry>& layer : layers) {
    const auto key = [](const Entry& e) { return std::pair(e.position.done, e.position.red); };
    const auto least = [](const Entry& e) { return e.paid + e.position.ahead; };
    std::ranges::sort(layer, [&](const Entry& a, const Entry& b) {
      return std::pair(least(a), key(a)) < std::pair(least(b), key(b));
    });
    std::size_t followed = 0;
    for (std::size_t k = 0; k < layer.size() && followed < width; ++k) {
      if (k > 0 && layer[k].paid == layer[k - 1].paid && key(layer[k]) == key(layer[k - 1])) continue;
      ++followed;
      kept.push_back(std::move(layer[k]));
      const std::size_t self = kept.size() - 1;
      const Position position = kept[self].position;
      const int paid = kept[self].paid;
      if (game.finished(position)) {
        std::vector<std::size_t> way;
        for (std::size_t at = self; at != kNone; at = kept[at].parent) way.push_back(at);
        std::vector<Step> steps;
        for (std::size_t at = way.size(); at-- > 0;)
          steps.insert(steps.end(), kept[way[at]].steps.begin(), kept[way[at]].steps.end());
        return std::pair(paid, std::move(steps));
      }
      // Two prices are enough: the least, and the next.
      for (int extra = 0, prices = 0; extra < kNever && prices < 2;) {
        bool any = false;
        extra = game.expand(position, extra, [&](const Successor& s) {
          any = true;
          Entry next{s.position, paid + s.cost, self, {s.step}};
          game.close(next.position, &next.steps);
          add(std::move(next));
        });
        if (any) ++prices;
      }
    }
    layer.clear();
  }
  return std::nullopt;
}

}  // namespace redblue::pebbling
