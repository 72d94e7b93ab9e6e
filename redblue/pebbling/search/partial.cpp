#include "redblue/pebbling/search/partial.hpp"

namespace redblue::pebbling {

Position Partial::updated(const Position& p, std::size_t edge, Set evicted) const {
  const auto [from, to] = board_.edges[edge];
  Position next{.done = p.done | only(edge), .red = (p.red & ~evicted) | only(from) | only(to)};
  next.clean = (p.clean | (only(from) & ~p.red)) & ~only(to);
  Set keep = 0;
  for_each(next.red, [&](std::size_t x) {
    if (!dead(x, next.done)) keep |= only(x);
  });
  next.red = keep;
  // Inputs are blue for ever, and a whole output leaves for 1 in any case: they need no mark.
  next.clean &= next.red & ~board_.inputs;
  for_each(next.clean & board_.outputs, [&](std::size_t x) {
    if (whole(x, next.done)) next.clean &= ~only(x);
  });
  return next;
}

bool Partial::never_wrong(const Position& p, std::size_t edge) const {
  const auto [from, to] = board_.edges[edge];
  if (!whole(from, p.done)) return false;
  const Set done = p.done | only(edge);
  const bool from_red = (p.red & only(from)) != 0, to_red = (p.red & only(to)) != 0;
  const bool from_dies = dead(from, done);
  const bool room = number_in(p.red | only(from) | only(to)) <= M_;
  if (to_red && ((p.clean & only(to)) == 0 || dead(to, done))) return from_red || (from_dies && room);
  if (to_red) return from_red && from_dies;
  // A new node takes the place of a parent that dies and costs as much to put away.
  return fresh(to, p.done) && from_red && from_dies && room && prices(only(from), p) == 2;
}

void Partial::close(Position& p, std::vector<Step>* steps) const {
  for (Set todo = all_edges() & ~p.done; todo != 0;) {
    const std::size_t edge = first_of(todo);
    todo &= todo - 1;
    if (!never_wrong(p, edge)) continue;
    if (steps != nullptr) steps->push_back({board_.edges[edge].to, board_.edges[edge].from, 0});
    p = updated(p, edge, 0);
    todo = all_edges() & ~p.done;
  }
}

}  // namespace redblue::pebbling
