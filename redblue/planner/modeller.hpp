#pragma once
#include <cstddef>
#include <memory>

#include "redblue/planner/fastest.hpp"

namespace redblue {

/// Are they one schedule with the same tiles?
bool is_same(const plan::Row& a, const plan::Row& b);
/// Does a take less modelled time, or as much with fewer words?
bool is_faster(const plan::Row& a, const plan::Row& b);

/// A model's view of one problem and one machine: the modelled time of rows, of which what they share is made once.
/// Problem, options and time must outlive it.
class Modeller {
 public:
  Modeller(const Problem& problem, const plan::Options& options, const TimeOptions& time);
  ~Modeller();
  Modeller(const Modeller&) = delete;
  Modeller& operator=(const Modeller&) = delete;

  const model::Rates& rates() const;
  /// The row on its own, for all instances. A walk of `most` operations at most stands for the rest; of 0: of as many
  /// as make the time good to some per cent.
  model::Time time_of(const plan::Row& row, std::size_t most = 0);
  /// This takes less time: the walk begins with a part of the problem that is about as large as the walks before tell,
  /// and a row that takes longer than hopeless_s by its first operations has the time that these tell.
  model::Time quick_time_of(const plan::Row& row, std::size_t most, double hopeless_s);
  /// The operations of all walks so far.
  std::size_t operations() const;
  /// Did the last walk end early, or in a part of a head?
  bool walked_part() const;

 private:
  class Walks;
  std::unique_ptr<Walks> walks_;
};

}  // namespace redblue
