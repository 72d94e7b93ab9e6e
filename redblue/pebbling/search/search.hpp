#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "redblue/pebbling/search/board.hpp"
#include "redblue/pebbling/search/symmetries.hpp"

namespace redblue::pebbling {

/// Where a play stands. What the sets hold is the affair of each game (one_shot.hpp, recompute.hpp, partial.hpp).
struct Position {
  Set done = 0;   ///< what is computed
  Set red = 0;    ///< nodes with a red pebble
  Set clean = 0;  ///< nodes whose blue pebble holds their value
  int ahead = 0;  ///< a lower bound on the excess from here on

  friend bool operator==(const Position&, const Position&) = default;
};

inline constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

/// One computation of a play, with the removals that precede it. Reads, writes and what is dead follow from the list of
/// all steps (steps.hpp).
struct Step {
  std::size_t node = 0;
  std::size_t parent = kNone;  ///< the edge of a partial computation, or the parent whose pebble slides
  Set evicted = 0;
};

/// A move of the search: where it leads, what it costs beyond the unavoidable reads and writes, and how.
struct Successor {
  Position position;
  int cost = 0;
  Step step;
};

/// No successor.
inline constexpr int kNever = std::numeric_limits<int>::max() / 4;

/// The search of the least excess: reads and writes beyond those that no play avoids. Positions are taken in rising
/// order of paid excess + the bound ahead, those deepest in the play first; a position that another one with the same
/// `done` is as good as, whatever must be paid to get there, is dropped; symmetric positions are one.
/// docs/proofs/pebbling.md has the proofs. A Game says
///   Position start() const; bool finished(const Position&) const;
///   void close(Position&, std::vector<Step>*) const      the computations that are never wrong, noted down
///   Position renamed(const Position&, const Symmetry&) const
///   int gap(const Position& a, const Position& b, int most) const    what a pays at most to be as good as b, done
///   being
///                                                        the same; any number above `most` if it is more
///   int expand(const Position&, int extra, emit) const   emits the successors that raise paid + ahead by just `extra`;
///                                                        the least larger raise that there is, or kNever
template <class Game>
class Search {
 public:
  struct Limits {
    double seconds = 60;  ///< of processor time
    std::size_t bytes = std::size_t{4} << 30;
    int upper = kNever;  ///< an excess that is known to be enough
    /// Told the proved lower bound of the excess, when it rises.
    std::function<void(int lower)> progress = {};
  };
  struct Result {
    int lower = 0;  ///< no play has less excess
    /// A play with the least excess, if it is less than limits.upper and was found.
    std::optional<std::vector<Step>> steps;
    bool complete = false;  ///< lower is the least excess, or limits.upper is
    std::size_t positions = 0;
  };

  Search(const Game& game, std::span<const Symmetry> symmetries)
      : game_(game), symmetries_(symmetries), table_(std::size_t{1} << 12, kNobody) {}

  Result run(const Limits& limits) {
    upper_ = limits.upper;
    const std::clock_t begin = std::clock();
    Position start = game_.start();
    normalise(start, nullptr);
    store(start, 0, kNobody);
    Result result;
    std::size_t expanded = 0;
    for (std::size_t& total = total_; total < buckets_.size() && static_cast<int>(total) < upper_;) {
      if (static_cast<int>(total) > result.lower) {
        result.lower = static_cast<int>(total);
        if (limits.progress) limits.progress(result.lower);
      }
      if (buckets_[total].empty()) {
        ++total;
        continue;
      }
      const Open next = buckets_[total].back();
      buckets_[total].pop_back();
      result.positions = places_.size();
      if (places_[next.place].dropped) continue;
      const Position position = places_[next.place].position;
      const int paid = places_[next.place].paid;
      if (game_.finished(position)) {
        result.steps = steps_to(next.place);
        result.complete = true;
        return result;
      }
      ++expanded;
      if ((expanded & 255) == 0 &&
          (static_cast<double>(std::clock() - begin) > limits.seconds * CLOCKS_PER_SEC || bytes() > limits.bytes))
        return result;
      const int more = game_.expand(position, next.extra, [&](const Successor& s) {
        Position p = s.position;
        normalise(p, nullptr);
        store(p, paid + s.cost, next.place);
      });
      if (more < kNever)
        open(total - static_cast<std::size_t>(next.extra) + static_cast<std::size_t>(more), next.place, more);
    }
    result.complete = true;
    if (upper_ < kNever) result.lower = upper_;
    return result;
  }

 private:
  static constexpr std::uint32_t kNobody = std::numeric_limits<std::uint32_t>::max();
  struct Place {
    Position position;
    std::uint32_t parent;
    int paid;
    bool dropped;
  };
  struct Open {
    std::uint32_t place;
    int extra;
  };
  /// The places with the same `done` that no other one is as good as.
  struct Rival {
    Set red, clean;
    std::uint32_t place;
    int paid;
  };
  struct Group {
    Set done;
    std::vector<Rival> rivals;
  };

  /// Plays what is never wrong, and renames to the least of symmetric positions. Returns the symmetry, or kNone.
  std::size_t normalise(Position& p, std::vector<Step>* steps) const {
    game_.close(p, steps);
    const auto key = [](const Position& x) { return std::array{x.done, x.red, x.clean}; };
    Position least = p;
    std::size_t by = kNone;
    for (std::size_t k = 0; k < symmetries_.size(); ++k) {
      const Position other = game_.renamed(p, symmetries_[k]);
      if (key(other) >= key(least)) continue;
      least = other;
      by = k;
    }
    p = least;
    return by;
  }

  void store(const Position& p, int paid, std::uint32_t parent) {
    if (paid + p.ahead >= upper_) return;
    std::vector<Rival>& rivals = rivals_of(p.done);
    for (const Rival& r : rivals)
      if (r.paid <= paid && r.paid + game_.gap({p.done, r.red, r.clean}, p, paid - r.paid) <= paid) return;
    std::erase_if(rivals, [&](const Rival& r) {
      if (paid > r.paid || paid + game_.gap(p, {p.done, r.red, r.clean}, r.paid - paid) > r.paid) return false;
      places_[r.place].dropped = true;
      return true;
    });
    const auto place = static_cast<std::uint32_t>(places_.size());
    places_.push_back({p, parent, paid, false});
    rivals.push_back({p.red, p.clean, place, paid});
    open(static_cast<std::size_t>(paid) + static_cast<std::size_t>(p.ahead), place, 0);
  }

  void open(std::size_t total, std::uint32_t place, int extra) {
    if (static_cast<int>(total) >= upper_) return;
    total = std::max(total, total_);  // what is below was searched: no play from here can cost less than that
    if (buckets_.size() <= total) buckets_.resize(total + 1);
    buckets_[total].push_back({place, extra});
  }

  std::size_t slot_of(Set done) const {
    Set h = done;
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
    std::size_t slot = h & (table_.size() - 1);
    while (table_[slot] != kNobody && groups_[table_[slot]].done != done) slot = (slot + 1) & (table_.size() - 1);
    return slot;
  }

  std::vector<Rival>& rivals_of(Set done) {
    const std::size_t slot = slot_of(done);
    if (table_[slot] != kNobody) return groups_[table_[slot]].rivals;
    table_[slot] = static_cast<std::uint32_t>(groups_.size());
    groups_.push_back({done, {}});
    if (groups_.size() * 2 > table_.size()) {
      table_.assign(table_.size() * 2, kNobody);
      for (std::size_t k = 0; k < groups_.size(); ++k) table_[slot_of(groups_[k].done)] = static_cast<std::uint32_t>(k);
    }
    return groups_.back().rivals;
  }

  /// What the search holds: places with their rivals and open entries, twice for what grows by doubling.
  std::size_t bytes() const {
    return 2 * places_.size() * (sizeof(Place) + sizeof(Rival) + sizeof(Open)) + groups_.size() * sizeof(Group) * 2 +
           table_.size() * sizeof(std::uint32_t);
  }

  /// The steps of the play that reaches a place. Places hold renamed positions, so each step is found again and its
  /// nodes are named back.
  std::vector<Step> steps_to(std::uint32_t goal) const {
    std::vector<std::uint32_t> way;
    for (std::uint32_t k = goal; k != kNobody; k = places_[k].parent) way.push_back(k);
    std::ranges::reverse(way);
    std::vector<std::size_t> name(kMostOnBoard);  // of a node of the place, on the board
    for (std::size_t v = 0; v < name.size(); ++v) name[v] = v;
    std::vector<Step> result;
    const auto follow = [&](std::vector<Step> steps, std::size_t symmetry) {
      for (Step& s : steps) {
        s.node = name[s.node];
        if (s.parent != kNone) s.parent = name[s.parent];
        Set evicted = 0;
        for_each(s.evicted, [&](std::size_t x) { evicted |= only(name[x]); });
        s.evicted = evicted;
        result.push_back(s);
      }
      if (symmetry == kNone) return;
      const std::vector<std::size_t> before = name;
      const Renaming& renaming = symmetries_[symmetry].nodes;
      for (std::size_t v = 0; v < renaming.size(); ++v) name[renaming.of(v)] = before[v];
    };
    Position position = game_.start();
    std::vector<Step> first;
    const std::size_t symmetry = normalise(position, &first);
    follow(std::move(first), symmetry);
    for (std::size_t k = 1; k < way.size(); ++k) {
      const Place& from = places_[way[k - 1]];
      const Place& to = places_[way[k]];
      bool found = false;
      for (int extra = 0; !found && extra < kNever;)
        extra = game_.expand(from.position, extra, [&](const Successor& s) {
          if (found || from.paid + s.cost != to.paid) return;
          Position p = s.position;
          std::vector<Step> steps{s.step};
          const std::size_t by = normalise(p, &steps);
          if (p != to.position) return;
          found = true;
          follow(std::move(steps), by);
        });
    }
    return result;
  }

  const Game& game_;
  std::span<const Symmetry> symmetries_;
  int upper_ = kNever;
  std::size_t total_ = 0;  ///< paid + ahead of the positions that are expanded now
  std::vector<Place> places_;
  std::vector<Group> groups_;
  std::vector<std::uint32_t> table_;
  std::vector<std::vector<Open>> buckets_;
};

}  // namespace redblue::pebbling
