#pragma once
#include "redblue/language/data_machine.hpp"
#include "redblue/methods/kernels/row_polynomials.hpp"
#include "redblue/methods/kernels/sorting.hpp"
#include "redblue/schedules/operands/forward.hpp"

namespace redblue::schedule {

/// order <- the positions of the ids, a column, sorted by id. `counts` has how many rows have each: then the place of
/// the next, and so each position is written where it belongs.
template <class M>
void counting_sort(M& m, const SlowMatrix& ids, const SlowMatrix& order, const Arg& counts) {
  m.compute(kernel::FirstPlaces{}, counts);
  for (index_t i = 0; i < ids.shape.rows; ++i) {
    const auto word = m.load(ids.rows(i, 1));
    m.compute(kernel::TakePlace{}, counts, word);
    const index_t place = look_up(m, word, i);
    m.compute(kernel::SetTo{static_cast<double>(i)}, word);
    m.store(word, order.rows(place, 1));
  }
}

}  // namespace redblue::schedule
