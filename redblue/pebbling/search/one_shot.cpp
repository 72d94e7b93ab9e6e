#include "redblue/pebbling/search/one_shot.hpp"

namespace redblue::pebbling {

Set OneShot::ready(Set done) const {
  Set result = 0;
  const Set given = done | board_.inputs;
  for_each(board_.computed & ~done, [&](std::size_t v) {
    if ((board_.parents[v] & ~given) == 0) result |= only(v);
  });
  return result;
}

void OneShot::close(Position& p, std::vector<Step>* steps) const {
  for (Set todo = ready(p.done); todo != 0;) {
    const std::size_t v = first_of(todo);
    todo &= todo - 1;
    const Set parents = board_.parents[v];
    const Set dying = dead(parents, p.done | only(v));
    const int room = M_ - number_in(p.red | parents);
    if (room < 0 || (room == 0 && !(slide_ && dying != 0)) || (parents & ~p.red & ~dying) != 0) continue;
    // The new value takes the place of parents that die, if they cost as much to put away.
    if (board_.children[v] != 0 && prices(dying & p.red, p.clean) < prices(only(v), 0)) continue;
    if (steps != nullptr) steps->push_back({v, kNone, 0});
    p = computed(p, v, 0, dying);
    todo = ready(p.done);
  }
}

bool OneShot::worth_evicting(const Position& p, Set candidates, Set evicted) const {
  const auto uses = [&](std::size_t x) { return board_.children[x] & ~p.done; };
  const auto price = [&](std::size_t x) { return prices(only(x), p.clean); };
  for (Set ys = evicted; ys != 0; ys &= ys - 1) {
    const std::size_t y = first_of(ys);
    for (Set xs = candidates & ~evicted; xs != 0; xs &= xs - 1) {
      const std::size_t x = first_of(xs);
      if ((uses(x) & ~uses(y)) != 0 || price(x) != 1) continue;
      if (uses(x) != uses(y) || price(y) != 1 || x < y) return false;
    }
  }
  return true;
}

}  // namespace redblue::pebbling
