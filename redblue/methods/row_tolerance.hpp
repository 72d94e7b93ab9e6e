#pragma once
#include <functional>
#include <memory>
#include <string>

#include "redblue/methods/certificate.hpp"
#include "redblue/planner/planner.hpp"

namespace redblue {

/// Polynomials of each row that prove a tolerance, and the words that they move on the data at hand, at most.
struct RowAnswer {
  std::shared_ptr<const RowPolynomials> rows;  ///< null: none
  Words words;
  index_t exact_rows = 0;
};

/// The polynomials of fewest words, among degrees up to 8, keys as they are or centred, and 0, 1, 2, 4, .. exact keys,
/// that move fewer words than `most` (if given). `M`: fast memory, as far as known. `problem` has no approximation;
/// `plan` makes plans of it with one.
RowAnswer fewest_words_by_rows(const Problem& problem, const Certificate& norms, const RowLengths& lengths,
                               double tolerance, const std::optional<Words>& most, const Words& M,
                               const std::function<plan::Plan(const Problem&)>& plan);

}  // namespace redblue
