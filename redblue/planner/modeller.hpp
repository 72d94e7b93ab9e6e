#pragma once
#include <cstddef>
#include <memory>

#include "redblue/planner/fastest.hpp"

namespace redblue {

/// A model's view of one problem and one machine: the modelled time of rows, of which what they share is made once.
/// Problem, options and time must outlive it.
class Modeller {
 public:
  /// `most`: a walk of a row takes this many operations at most, and then stands for the rest. 0: as many as make a
  /// plan's time good to some per cent.
  Modeller(const Problem& problem, const plan::Options& options, const TimeOptions& time, std::size_t most = 0);
  ~Modeller();
  Modeller(const Modeller&) = delete;
  Modeller& operator=(const Modeller&) = delete;

  const model::Rates& rates() const;
  /// The row on its own, for all instances.
  model::Time time_of(const plan::Row& row);

 private:
  class Walks;
  std::unique_ptr<Walks> walks_;
};

}  // namespace redblue
