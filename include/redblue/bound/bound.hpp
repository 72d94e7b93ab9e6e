#pragma once
#include <string_view>
#include <vector>

#include "redblue/core/mask.hpp"
#include "redblue/core/words.hpp"

namespace redblue::bound {

/// A lower bound on reads + writes of every schedule of its class.
struct Bound {
  Words words;                  ///< 0 where the formula says less
  std::string_view name;        ///< "trivial", "F'", ...
  std::string_view algorithms;  ///< the class of schedules it binds
  std::string_view status;      ///< "proved" or "derived"; only proved bounds are reported as the bound of a problem
  std::string_view condition;   ///< when it holds
  bool holds = true;            ///< does this problem meet the condition?
};

/// A forward problem as the bounds see it: `instances` heads (or groups of query heads that share K and V), each with
/// n_q rows, n_k keys, under one fast memory of M words.
struct ForwardProblem {
  index_t instances = 1;
  index_t n_q = 0;
  index_t n_k = 0;
  index_t d = 0;
  index_t d_v = 0;
  Mask mask{};
  bool lse_required = false;
  Words M;
};

}  // namespace redblue::bound
