#include "redblue/planner/downhill.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "redblue/planner/candidates.hpp"
#include "redblue/planner/modeller.hpp"
#include "redblue/problem/cores.hpp"

namespace redblue {

namespace {

using Spot = std::array<std::size_t, 3>;

/// What candidates() has, by their spots.
class Lattice {
 public:
  Lattice(const Problem& problem, const plan::Options& options, const model::Rates& rates) {
    std::vector<std::pair<std::size_t, Candidate>> all;
    for (std::size_t s = 0; s < kShares.size(); ++s)
      for (const Candidate& a : candidates(problem, options, rates, kShares[s])) all.emplace_back(s, a);
    const auto values = [&](const auto& of) {
      std::vector<index_t> list;
      list.reserve(all.size());
      for (const auto& [s, a] : all) list.push_back(of(a));
      std::ranges::sort(list);
      list.erase(std::ranges::unique(list).begin(), list.end());
      return list;
    };
    const auto query = [](const Candidate& a) { return a.multiple.query; };
    const auto key = [](const Candidate& a) { return a.multiple.key; };
    const std::vector<index_t> queries = values(query), keys = values(key);
    const auto place = [](const std::vector<index_t>& list, index_t x) {
      return static_cast<std::size_t>(std::ranges::lower_bound(list, x) - list.begin());
    };
    candidates_.reserve(all.size());
    for (const auto& [s, a] : all) {  // in the order of their spots
      const Spot spot{s, place(queries, query(a)), place(keys, key(a))};
      if (candidates_.empty() || candidates_.back().first != spot) candidates_.emplace_back(spot, a);
    }
  }

  /// With this share of M the longest blocks of queries, in steps of 128 keys or of the most below: what wins most
  /// often.
  std::optional<Spot> first(std::size_t share) const {
    constexpr index_t kKeys = 128;
    std::optional<Spot> best;
    for (const auto& [spot, a] : candidates_)
      if (spot[0] == share && a.multiple.key <= kKeys) best = spot;
    return best;
  }
  const Candidate* at(const Spot& spot) const {
    const auto found = std::ranges::find(candidates_, spot, [](const auto& one) { return one.first; });
    return found == candidates_.end() ? nullptr : &found->second;
  }

 private:
  std::vector<std::pair<Spot, Candidate>> candidates_;
};

/// Drops all but the fastest `most` rows, and those that take more than `factor` times the time of the fastest.
void keep_close(std::vector<plan::Row>& rows, double factor, std::size_t most) {
  std::ranges::sort(rows, is_faster);
  std::erase_if(rows,
                [limit = factor * rows.front().time->total_s](const plan::Row& r) { return r.time->total_s > limit; });
  if (rows.size() > most) rows.resize(most);
}

/// Rows of a problem with their times; each row is timed once.
class Downhill {
 public:
  Downhill(const Problem& problem, const plan::Options& options, const TimeOptions& time)
      : problem_(problem),
        options_(options),
        threads_(time.threads),
        x_(plan::sizes_of(problem, options)),
        modeller_(problem, options, time),
        lattice_(problem, options, modeller_.rates()) {}

  /// Where searches begin. Under a window also with short blocks of queries, for long ones form many scores in vain,
  /// and with several threads, for long ones leave some idle.
  std::vector<Spot> starts() const {
    std::vector<Spot> list;
    for (std::size_t share = 0; share < kShares.size(); ++share)
      if (share == 0 || threads_ > 1 || (share == kShares.size() - 1 && !x_.mask.from_first_key()))
        if (const auto spot = lattice_.first(share)) list.push_back(*spot);
    if (const auto spot = small()) list.push_back(*spot);
    return list;
  }
  /// What moves along directions often takes few queries and few keys at a time under a mask.
  std::optional<Spot> small() const {
    const std::optional<Spot> first = lattice_.first(0);
    if (!first || !has_directions(problem_.op) || !problem_.masked() || (*first)[2] == 0) return std::nullopt;
    const Spot spot{kShares.size() - 1, 0, (*first)[2] - 1};
    return lattice_.at(spot) == nullptr ? std::nullopt : std::optional(spot);
  }
  /// Where the search for a usual schedule begins. Gradients under a mask often take few queries at a time, and
  /// patterns few queries and few keys.
  std::vector<Spot> usual_starts() const {
    std::vector<Spot> list = starts();
    if (list.empty()) return list;
    const Spot first = list.front();
    const auto add = [&](const Spot& spot) {
      if (lattice_.at(spot) != nullptr) list.push_back(spot);
    };
    const bool pattern = !problem_.patterns.empty();
    if (pattern || (problem_.op != Operation::forward && problem_.masked())) add({first[0], 0, first[2]});
    if (pattern && first[2] > 0) add({kShares.size() - 1, 0, first[2] - 1});
    return list;
  }
  /// The rows at a spot that may be chosen.
  std::vector<plan::Row> rows(const Spot& spot) { return rows(*lattice_.at(spot)); }
  std::vector<plan::Row> rows(const Candidate& candidate) {
    std::vector<plan::Row> list = plan::rows_that_fit(problem_, candidate.of(options_), x_);
    std::erase_if(list,
                  [](const plan::Row& r) { return !r.algorithm->traits.stable || r.algorithm->traits.own_softmax; });
    for (plan::Row& row : list) time(row);
    return list;
  }
  /// Goes from spot to spot while that makes the schedule faster; the spot where it ends, none where nothing fits, or
  /// where it begins with more than `factor` times the time of the fastest yet.
  std::optional<std::pair<Spot, plan::Row>> downhill(const LikelySchedule& from, double factor) {
    Spot spot{};
    std::optional<plan::Row> best;
    const auto begin_at = [&](const Spot& other) {
      std::optional<plan::Row> row = row_at(other, from.schedule);
      if (!row || (best && !is_faster(*row, *best))) return;
      best = std::move(row);
      spot = other;
    };
    if (from.spot) begin_at(*from.spot);
    if (const auto other = small(); from.spot && other) begin_at(*other);
    if (from.spot && !best) begin_at(lattice_.first(0).value_or(*from.spot));  // with the largest share it may fit
    if (!from.spot)
      for (const Spot& other : usual_starts()) begin_at(other);
    if (!best || best->time->total_s > factor * least_s_) return std::nullopt;
    for (Spot next = spot;; spot = next) {
      for (std::size_t axis = 0; axis < spot.size(); ++axis)
        for (const int step : {-1, 1})
          for (Spot other = spot;;) {                       // over spots with the same tiles
            other[axis] += static_cast<std::size_t>(step);  // below 0 there is no such spot
            std::optional<plan::Row> row = row_at(other, from.schedule);
            if (!row || is_faster(*best, *row)) break;
            if (is_faster(*row, *best)) {
              best = std::move(row);
              next = other;
              break;
            }
          }
      if (next == spot) return std::pair(spot, std::move(*best));
    }
  }
  /// What asks for blocks of a size that the problem suggests.
  std::vector<Candidate> suggested() const { return blocks(problem_, options_, modeller_.rates(), threads_); }
  void try_blocks(std::string_view schedule) {
    for (const Candidate& a : suggested()) row_of(a, schedule);
  }
  /// All operations that were walked.
  std::size_t operations() const { return modeller_.operations(); }
  /// All rows that were timed.
  const std::vector<plan::Row>& met() const { return met_; }
  /// The time of a row that was met after a longer walk, where the first one ended in a part of the problem.
  model::Time longer(const plan::Row& row) {
    const auto same = [&](const plan::Row& r) { return is_same(r, row); };
    if (!in_part_[static_cast<std::size_t>(std::ranges::find_if(met_, same) - met_.begin())]) return *row.time;
    constexpr std::size_t kLonger = 2;
    const std::size_t operations = kLonger * operations_that_tell(problem_, threads_);
    // A quick walk begins with a part, of which several threads share other rounds.
    return threads_ > 1 ? modeller_.time_of(row, operations) : modeller_.quick_time_of(row, operations, HUGE_VAL);
  }

 private:
  std::optional<plan::Row> row_at(const Spot& spot, std::string_view schedule) {
    const Candidate* candidate = lattice_.at(spot);
    if (candidate == nullptr) return std::nullopt;
    const auto [found, fresh] = at_spots_.try_emplace({spot, schedule});
    if (fresh) found->second = row_of(*candidate, schedule);
    return found->second;
  }
  std::optional<plan::Row> row_of(const Candidate& candidate, std::string_view schedule) {
    plan::Options o = candidate.of(options_);
    o.schedule = schedule;
    std::vector<plan::Row> list = plan::rows_that_fit(problem_, o, x_, met_);
    if (list.empty()) return std::nullopt;
    time(list.front());
    return std::move(list.front());
  }
  void time(plan::Row& row) {
    const auto same = [&](const plan::Row& r) { return is_same(r, row); };
    if (const auto found = std::ranges::find_if(met_, same); found != met_.end()) {
      row.time = found->time;
    } else {
      constexpr double kHopeless = 2;  // times the fastest yet: more than may win, as far as first operations tell
      row.time = modeller_.quick_time_of(row, operations_that_tell(problem_, threads_), kHopeless * least_s_);
      least_s_ = std::min(least_s_, row.time->total_s);
      met_.push_back(row);
      in_part_.push_back(modeller_.walked_part());
    }
  }

  const Problem& problem_;
  const plan::Options& options_;
  int threads_;
  Sizes x_;
  Modeller modeller_;
  Lattice lattice_;
  std::map<std::pair<Spot, std::string_view>, std::optional<plan::Row>> at_spots_;
  std::vector<plan::Row> met_;
  std::vector<bool> in_part_;  ///< of each of these: was only a part of the problem walked?
  double least_s_ = HUGE_VAL;  ///< of these
};

}  // namespace

std::size_t operations_that_tell(const Problem& problem, int threads) {
  if (threads > 1) return 1'000;
  return problem.masked() || !problem.patterns.empty() ? 600 : 200;
}

std::vector<LikelySchedule> contenders_for(const Problem& problem, const plan::Options& options,
                                           const TimeOptions& time) {
  constexpr double kMayWin = 1.3;  // of the time with the tiles that all begin with
  constexpr double kClose = 1.05;  // of that with tiles of their own
  const std::size_t kMost = time.threads > 1 ? 5 : 3;
  const CoreMemo memo;
  Downhill search(problem, options, time);
  std::vector<std::pair<plan::Row, Spot>> rows;  // of each schedule the fastest
  const auto add = [&](std::vector<plan::Row> some, const Spot& spot) {
    for (plan::Row& row : some) {
      const auto same = [&](const auto& r) { return r.first.schedule == row.schedule; };
      if (const auto found = std::ranges::find_if(rows, same); found == rows.end())
        rows.emplace_back(std::move(row), spot);
      else if (is_faster(row, found->first))
        *found = {std::move(row), spot};
    }
  };
  const std::vector<Spot> starts = search.starts();
  for (const Spot& spot : starts) add(search.rows(spot), spot);
  if (!starts.empty())
    for (const Candidate& a : search.suggested()) add(search.rows(a), starts.back());
  if (rows.empty()) return {};
  std::ranges::stable_sort(rows, [](const auto& a, const auto& b) { return is_faster(a.first, b.first); });
  const double may_win = kMayWin * rows.front().first.time->total_s;
  std::erase_if(rows, [&](const auto& r) { return r.first.time->total_s > may_win; });
  // Schedules that take the same time and words with these tiles do so with others, but for what several threads share.
  const auto alike = [&](const auto& a, const auto& b) {
    return time.threads == 1 && a.first.time->total_s == b.first.time->total_s &&
           a.first.io.total() == b.first.io.total();
  };
  rows.erase(std::ranges::unique(rows, alike).begin(), rows.end());
  if (rows.size() > kMost) rows.resize(kMost);
  std::vector<std::pair<double, LikelySchedule>> list;
  for (const auto& [row, spot] : rows)
    if (const auto end = search.downhill({row.schedule, spot}, HUGE_VAL))
      list.emplace_back(std::min(row.time->total_s, end->second.time->total_s),
                        LikelySchedule{row.schedule, end->first});
  if (list.empty()) return {};
  const double least = std::ranges::min_element(list, {}, [](const auto& c) { return c.first; })->first;
  std::vector<LikelySchedule> close;
  for (const auto& [seconds, contender] : list)
    if (seconds <= kClose * least) close.push_back(contender);
  return close;
}

std::vector<LikelySchedule> usual_contenders(const Problem& problem, const plan::Options& options,
                                             const TimeOptions& time) {
  if (problem.approximation != nullptr || problem.score != Score::softmax || time.threads > 1 ||
      options.M != fast_memory_of(time.hardware, time.dtype))
    return {};
  if (problem.op == Operation::forward) return {{"flash"}};
  if (problem.op == Operation::tangent) return {{"query_outer"}};
  if (problem.op == Operation::second) return {{"fused_key_outer"}};
  if (problem.op != Operation::backward) return {};
  constexpr index_t kOneTile = 32;  // queries that are one tile, in which passes over queries and over keys are alike
  if (problem.n_q <= kOneTile) return {{"fused_key_outer"}, {"fused_query_outer"}};
  return {{"fused_key_outer"}};
}

std::optional<Found> fastest_of(const std::vector<LikelySchedule>& contenders, const Problem& problem,
                                const plan::Options& options, const TimeOptions& time) {
  constexpr double kClose = 1.05;
  constexpr double kMayWin = 1.1;  // of the fastest yet, where it begins with the best tiles of its kind
  constexpr std::size_t kFinalists = 3;
  if (contenders.empty()) return std::nullopt;
  const CoreMemo memo;
  Downhill search(problem, options, time);
  for (const LikelySchedule& c : contenders)
    if (search.downhill(c, kMayWin)) search.try_blocks(c.schedule);
  std::vector<plan::Row> finalists = search.met();
  if (finalists.empty()) return std::nullopt;
  keep_close(finalists, kClose, kFinalists);
  if (finalists.size() > 1)
    for (plan::Row& row : finalists) row.time = search.longer(row);
  return Found{*std::ranges::min_element(finalists, is_faster), search.met().size(), search.operations()};
}

}  // namespace redblue
