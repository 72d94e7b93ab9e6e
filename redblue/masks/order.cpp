#include "redblue/masks/order.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace redblue {

namespace {

constexpr index_t kMostSteps = index_t{1} << 27;  ///< of a search for an order: seconds

index_t size_of(std::span<const Range> runs) {
  index_t sum = 0;
  for (const Range& run : runs) sum += run.size();
  return sum;
}

/// The keys that a position sees, of all heads of a group.
RunLists positions_of(const RunLists& rows, index_t group) {
  if (group == 1) return rows;
  RunLists positions;
  for (index_t r = 0; r < rows.size(); r += group) positions.append(1, union_of(rows, {r, r + group}));
  return positions;
}

/// Positions that see a key, in the order in which a search meets them.
class Search {
 public:
  Search(const RunLists& rows, const RunLists& keys)
      : rows_(rows), keys_(keys), degree_(static_cast<std::size_t>(rows.size())) {
    for (index_t i = 0; i < rows.size(); ++i) degree_[static_cast<std::size_t>(i)] = size_of(rows.of(i));
  }

  /// Reverse Cuthill-McKee: breadth first from a position of few keys, those of fewer keys first.
  std::vector<index_t> rcm() const {
    std::vector<index_t> starts;
    for (index_t i = 0; i < rows_.size(); ++i)
      if (degree(i) > 0) starts.push_back(i);
    std::ranges::stable_sort(starts, {}, [&](index_t i) { return degree(i); });
    std::vector<index_t> order;
    std::vector<bool> met(static_cast<std::size_t>(rows_.size())), key_met(static_cast<std::size_t>(keys_.size()));
    for (const index_t start : starts) {
      if (met[static_cast<std::size_t>(start)]) continue;
      met[static_cast<std::size_t>(start)] = true;
      order.push_back(start);
      for (std::size_t next = order.size() - 1; next < order.size(); ++next) {
        std::vector<index_t> neighbours;
        for (const Range& run : rows_.of(order[next]))
          for (index_t j = run.begin; j < run.end; ++j) {
            if (was_set(key_met, j)) continue;
            for (const Range& seeing : keys_.of(j))
              for (index_t i = seeing.begin; i < seeing.end; ++i)
                if (!was_set(met, i)) neighbours.push_back(i);
          }
        std::ranges::sort(neighbours, {}, [&](index_t i) { return std::pair(degree(i), i); });
        order.insert(order.end(), neighbours.begin(), neighbours.end());
      }
    }
    std::ranges::reverse(order);
    return order;
  }

  /// Each followed by the one that shares most of its keys, measured by what they share of what both see.
  std::optional<std::vector<index_t>> jaccard() const {
    Words steps;  // of the search: each position meets all that see one of its keys
    keys_.for_groups([&](Range keys, std::span<const Range> runs) {
      const Words seeing = size_of(runs);
      steps += keys.size() * seeing * seeing;
    });
    if (steps > Words(kMostSteps)) return std::nullopt;
    constexpr index_t kWordBits = 64;
    const index_t words = rows_.holds_bits() ? rows_.bits_end() / kWordBits : 0;
    const bool by_bits = words > 0 && Words(rows_.size()) * rows_.size() * words < steps;
    std::vector<std::uint64_t> keys(static_cast<std::size_t>(words));  // of the last position
    std::vector<index_t> order;
    std::vector<bool> met(static_cast<std::size_t>(rows_.size()));
    std::vector<index_t> shared(static_cast<std::size_t>(rows_.size()));
    for (index_t start = 0; start < rows_.size(); ++start) {
      if (degree(start) == 0 || met[static_cast<std::size_t>(start)]) continue;
      for (index_t last = start; last >= 0;) {
        met[static_cast<std::size_t>(last)] = true;
        order.push_back(last);
        std::vector<index_t> touched;
        const auto meet = [&](index_t i, index_t more) {
          if (shared[static_cast<std::size_t>(i)] == 0) touched.push_back(i);
          shared[static_cast<std::size_t>(i)] += more;
        };
        if (by_bits) {
          for (index_t w = 0; w < words; ++w) keys[static_cast<std::size_t>(w)] = rows_.seen(last, w * kWordBits);
          for (index_t i = 0; i < rows_.size(); ++i) {
            if (met[static_cast<std::size_t>(i)]) continue;
            index_t both = 0;
            for (index_t w = 0; w < words; ++w)
              both += std::popcount(keys[static_cast<std::size_t>(w)] & rows_.seen(i, w * kWordBits));
            if (both > 0) meet(i, both);
          }
        } else {
          for (const Range& run : rows_.of(last))
            for (index_t j = run.begin; j < run.end; ++j)
              for (const Range& seeing : keys_.of(j))
                for (index_t i = seeing.begin; i < seeing.end; ++i)
                  if (!met[static_cast<std::size_t>(i)]) meet(i, 1);
        }
        index_t best = -1;
        double most = 0;
        for (const index_t i : touched) {
          const index_t both = std::exchange(shared[static_cast<std::size_t>(i)], 0);
          const double alike = static_cast<double>(both) / static_cast<double>(degree(last) + degree(i) - both);
          if (alike > most || (alike == most && i < best)) {
            most = alike;
            best = i;
          }
        }
        last = best;
      }
    }
    return order;
  }

 private:
  /// Sets a mark, and says whether it was set.
  static bool was_set(std::vector<bool>& marks, index_t i) {
    const bool before = marks[static_cast<std::size_t>(i)];
    marks[static_cast<std::size_t>(i)] = true;
    return before;
  }
  index_t degree(index_t i) const { return degree_[static_cast<std::size_t>(i)]; }

  const RunLists& rows_;
  const RunLists& keys_;
  std::vector<index_t> degree_;
};

/// Adds what is missing of 0 to n - 1, in ascending order.
void complete(std::vector<index_t>& order, index_t n) {
  std::vector<bool> there(static_cast<std::size_t>(n));
  for (const index_t i : order) there[static_cast<std::size_t>(i)] = true;
  for (index_t i = 0; i < n; ++i)
    if (!there[static_cast<std::size_t>(i)]) order.push_back(i);
}

/// Where each stands.
std::vector<index_t> inverse_of(const std::vector<index_t>& order) {
  std::vector<index_t> place(order.size());
  for (std::size_t k = 0; k < order.size(); ++k) place[static_cast<std::size_t>(order[k])] = static_cast<index_t>(k);
  return place;
}

}  // namespace

bool too_large_to_search(const RunLists& rows) { return rows.runs_held() > kMostRunsToSearch; }

void Order::complete(index_t positions, index_t n_k) {
  redblue::complete(queries, positions);
  redblue::complete(keys, n_k);
}

Order chained(const Order& first, const Order& second) {
  const auto chain = [](const std::vector<index_t>& from, std::vector<index_t> places) {
    for (index_t& place : places) place = from[static_cast<std::size_t>(place)];
    return places;
  };
  return {chain(first.queries, second.queries), chain(first.keys, second.keys)};
}

bool Order::idle() const {
  const auto stays = [](const std::vector<index_t>& list) {
    for (std::size_t k = 0; k < list.size(); ++k)
      if (list[k] != static_cast<index_t>(k)) return false;
    return true;
  };
  return stays(queries) && stays(keys);
}

std::optional<Order> order_of(PatternOrder kind, const RunLists& rows, index_t n_k, index_t group) {
  const bool searched = is_searched(kind);
  RunLists positions = positions_of(rows, group);
  if (searched && (count_of(positions) > Words(kMostSteps) || too_large_to_search(positions))) return std::nullopt;
  Order order;
  if (!searched) {
    for (index_t i = 0; i < positions.size(); ++i)
      if (!positions.of(i).empty()) order.queries.push_back(i);
    for (const Range& seen : union_of(positions, {0, positions.size()}))
      for (index_t j = seen.begin; j < seen.end; ++j) order.keys.push_back(j);
  } else {
    positions.hold_bits(n_k);
    const RunLists keys = transposed(positions, n_k);
    if (positions.runs_held() + keys.runs_held() > kMostRunsToSearch) return std::nullopt;
    const Search search(positions, keys);
    const auto found = kind == PatternOrder::rcm ? std::optional(search.rcm()) : search.jaccard();
    if (!found) return std::nullopt;
    order.queries = *found;
    // Keys as queries come to see them; of those that begin together the ones that end first.
    std::vector<index_t> all = order.queries;
    complete(all, positions.size());
    const std::vector<index_t> place = inverse_of(all);
    std::vector<std::pair<index_t, index_t>> seen(static_cast<std::size_t>(n_k));
    for (index_t j = 0; j < n_k; ++j) {
      if (keys.of(j).empty()) continue;
      order.keys.push_back(j);
      auto& [first, last] = seen[static_cast<std::size_t>(j)];
      first = positions.size();
      last = -1;
      for (const Range& run : keys.of(j))
        for (index_t i = run.begin; i < run.end; ++i) {
          first = std::min(first, place[static_cast<std::size_t>(i)]);
          last = std::max(last, place[static_cast<std::size_t>(i)]);
        }
    }
    std::ranges::stable_sort(order.keys, {}, [&](index_t j) { return seen[static_cast<std::size_t>(j)]; });
  }
  order.complete(positions.size(), n_k);
  return order;
}

RunLists in_order(const RunLists& rows, const Order& order, index_t group) {
  const std::vector<index_t> place = inverse_of(order.keys);
  std::vector<index_t> end(place.size());  // of the neighbours from each key on that stay neighbours
  for (std::size_t j = place.size(); j-- > 0;)
    end[j] = j + 1 < place.size() && place[j + 1] == place[j] + 1 ? end[j + 1] : static_cast<index_t>(j) + 1;
  RunLists list;
  list.set_index(rows.index());
  std::vector<Range> runs;
  for (const index_t position : order.queries)
    for (index_t r = position * group; r < (position + 1) * group; ++r) {
      runs.clear();
      for (const Range& run : rows.of(r))
        for (index_t j = run.begin; j < run.end;) {
          const index_t to = place[static_cast<std::size_t>(j)];
          const index_t stop = std::min(run.end, end[static_cast<std::size_t>(j)]);
          runs.push_back({to, to + stop - j});
          j = stop;
        }
      sort_and_join(runs);
      list.append(1, runs);
    }
  return list;
}

}  // namespace redblue
