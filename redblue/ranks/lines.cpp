#include "redblue/ranks/lines.hpp"

#include <algorithm>
#include <utility>

namespace redblue::ranks {
namespace {

/// The rows of all places of a line, from the first position to the last.
class Ordered {
 public:
  explicit Ordered(std::span<const Rows* const> homes) {
    for (std::size_t i = 0; i < homes.size(); ++i)
      for (const Range& r : homes[i]->ranges()) ranges_.push_back({r, static_cast<index_t>(i)});
    std::ranges::sort(ranges_, {}, [](const Block& o) { return o.rows.begin; });
    before_.push_back(0);
    for (std::size_t k = 0; k < ranges_.size(); ++k) {
      before_.push_back(before_.back() + ranges_[k].rows.size());
      if (k == 0 || !goes_on(k)) runs_.push_back(k);
    }
  }
  /// The rows in [x, y).
  index_t rows(Range r) const {
    const auto [from, to] = met(r);
    if (from >= to) return 0;
    return before_[to] - before_[from] - std::max<index_t>(0, r.begin - ranges_[from].rows.begin) -
           std::max<index_t>(0, ranges_[to - 1].rows.end - r.end);
  }
  /// Appends the places that have rows in it, as ranges of places.
  void add_places(Range r, std::vector<Range>& places) const {
    const auto [from, to] = met(r);
    if (from >= to) return;
    auto run = std::ranges::upper_bound(runs_, from) - 1;
    for (std::size_t k = from; k < to; ++run) {
      const std::size_t end = run + 1 == runs_.end() ? to : std::min(to, run[1]);
      const auto [least, most] = std::minmax(ranges_[k].place, ranges_[end - 1].place);
      places.push_back({least, most + 1});
      k = end;
    }
  }

 private:
  struct Block {
    Range rows;
    index_t place;
  };
  /// Is range k that of the place beside the place of range k - 1, on the same way?
  bool goes_on(std::size_t k) const {
    const index_t step = ranges_[k].place - ranges_[k - 1].place;
    if (step != 1 && step != -1) return false;
    return runs_.back() == k - 1 || step == ranges_[k - 1].place - ranges_[k - 2].place;
  }
  /// The ranges, by number, that have rows in it.
  std::pair<std::size_t, std::size_t> met(Range r) const {
    const auto from = std::ranges::upper_bound(ranges_, r.begin, {}, [](const Block& o) { return o.rows.end; });
    const auto to = std::ranges::lower_bound(ranges_, r.end, {}, [](const Block& o) { return o.rows.begin; });
    return {static_cast<std::size_t>(from - ranges_.begin()), static_cast<std::size_t>(to - ranges_.begin())};
  }

  std::vector<Block> ranges_;
  std::vector<index_t> before_;    ///< rows of the ranges before each
  std::vector<std::size_t> runs_;  ///< where the places of successive ranges cease to go up, or down, by one
};

/// How many places need each row: a function of positions that changes where what one needs begins or ends.
class Demand {
 public:
  explicit Demand(std::span<const Rows> needed) {
    std::vector<std::pair<index_t, index_t>> changes;
    for (const Rows& rows : needed)
      for (const Range& r : rows.ranges()) {
        changes.emplace_back(r.begin, 1);
        changes.emplace_back(r.end, -1);
      }
    std::ranges::sort(changes);
    index_t count = 0;
    for (const auto& [at, by] : changes) {
      const Words sum = steps_.empty() ? Words(0) : steps_.back().sum + Words(at - steps_.back().at) * count;
      count += by;
      steps_.push_back({at, count, sum});
    }
  }
  /// Summed over the rows of a range.
  Words of(Range r) const { return before(r.end) - before(r.begin); }

 private:
  struct Step {
    index_t at, count;
    Words sum;  ///< over all positions before it
  };
  Words before(index_t position) const {
    const auto next = std::ranges::upper_bound(steps_, position, {}, &Step::at);
    if (next == steps_.begin()) return 0;
    return next[-1].sum + Words(position - next[-1].at) * next[-1].count;
  }
  std::vector<Step> steps_;
};

}  // namespace

std::vector<Flow> line_flows(std::span<const Rows* const> homes, std::span<const Rows> needed) {
  const Ordered ordered(homes);
  const Demand demand(needed);
  const std::size_t n = homes.size();
  std::vector<Flow> flows(n);
  std::vector<index_t> users(n + 1);  // differences from place to place: how many places need some of its rows
  for (std::size_t i = 0; i < n; ++i) {
    const Rows own = intersection(*homes[i], needed[i]);
    const index_t kept = own.count(), one = own.empty() ? 0 : 1;
    index_t rows = 0;
    std::vector<Range> places;
    for (const Range& r : needed[i].ranges()) {
      rows += ordered.rows(r);
      ordered.add_places(r, places);
    }
    const Rows from{std::move(places)};
    for (const Range& r : from.ranges()) {
      ++users[static_cast<std::size_t>(r.begin)];
      --users[static_cast<std::size_t>(r.end)];
    }
    Words asked;
    for (const Range& r : homes[i]->ranges()) asked += demand.of(r);
    flows[i].inputs_in = {rows - kept, from.count() - one};
    flows[i].inputs_out = {asked - kept, -one};
  }
  index_t asking = 0;
  for (std::size_t i = 0; i < n; ++i) {
    asking += users[i];
    flows[i].inputs_out.number += asking;
    flows[i].results_in = flows[i].inputs_out;
    flows[i].results_out = flows[i].inputs_in;
  }
  return flows;
}

std::vector<Flow> ring_flows(std::span<const Rows* const> homes) {
  const std::size_t n = homes.size();
  Messages all;
  for (const Rows* rows : homes) {
    all.rows += rows->count();
    all.number += rows->empty() ? 0 : 1;
  }
  std::vector<Flow> flows(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto all_but = [&](std::size_t k) {
      const Rows& rows = *homes[k % n];
      return Messages{all.rows - rows.count(), all.number - (rows.empty() ? 0 : 1)};
    };
    flows[i] = {all_but(i), all_but(i + n - 1), all_but(i + 1), all_but(i)};
  }
  return flows;
}

}  // namespace redblue::ranks
