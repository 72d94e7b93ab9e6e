#pragma once
#include <type_traits>

#include "redblue/machines/passing.hpp"
#include "redblue/methods/schedules/polynomial_clusters.hpp"
#include "redblue/methods/schedules/polynomial_pairs.hpp"
#include "redblue/methods/schedules/polynomial_rows.hpp"

/// Slips in polynomial attention by rows.
namespace redblue::test::mutants {

using namespace schedule;

enum class RowSlip {
  none,
  keeps_rows_at_the_cap,  ///< the number of the last polynomial for radii beyond the range: no row is listed
  forgets_the_longest,    ///< of the keys in the state: every radius is 0
  keeps_the_first,        ///< keys, not the longest
  takes_the_sum_for_the_mean,
  takes_places_for_ids,   ///< of the list
  adds_no_exact_weights,  ///< of pairs that meet: the state has them all the same
  forgets_the_unit,       ///< of polynomials beside exact weights
  halves_the_steps,       ///< of spreads
};

/// A machine on which the schedule makes one of these slips.
template <class Base, RowSlip slip>
class Slipping : public machine::Passing<Slipping<Base, slip>, Base> {
  using Passes = machine::Passing<Slipping, Base>;

 public:
  using Passes::Passes;

  template <class K>
  void run(K k, std::span<const Arg> args) {
    using enum RowSlip;
    if constexpr (slip == keeps_rows_at_the_cap && std::is_same_v<K, kernel::RadiusNumber>) k.most -= 1;
    if constexpr (slip == forgets_the_longest && std::is_same_v<K, kernel::LongestRow>) return;
    if constexpr (slip == keeps_the_first && std::is_same_v<K, kernel::KeepLongest>) return;
    if constexpr (slip == takes_the_sum_for_the_mean && std::is_same_v<K, kernel::Scale>) return;
    if constexpr (slip == adds_no_exact_weights && std::is_same_v<K, kernel::CentredScores>) k.scale = 0;
    if constexpr (slip == forgets_the_unit && std::is_same_v<K, kernel::ExactLessPolynomial>) k.unit = 0;
    if constexpr (slip == halves_the_steps && std::is_same_v<K, kernel::SpreadNumber>) k.step /= 2;
    Passes::run(k, args);
  }
  index_t read_index(Question question, const Arg& word, index_t worst) {
    const index_t answer = Passes::read_index(question, word, worst);
    return slip == RowSlip::takes_places_for_ids && question == Question::index ? word.block.row : answer;
  }
  template <class Body>
  void each(index_t n, const Body& body) {
    this->base().each(n, [&](Base& base, index_t i) {
      Slipping worker(base);
      body(worker, i);
    });
  }
};

/// The schedule S on such a machine.
template <class S, RowSlip slip>
struct WithSlip : S {
  static constexpr std::string_view name = "with_a_slip";

  template <DataMachine M>
  static void run(M& m, const ForwardOperands& x, typename S::Tiling t) {
    Slipping<M, slip> slipping(m);
    S::run(slipping, x, t);
  }
};

/// PolynomialRowsForward with its state beside the rows that are exact.
struct KeepsTheState : PolynomialRowsForward {
  static constexpr std::string_view name = "keeps_the_state";

  template <DataMachine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    std::vector<index_t> listed;
    const RowState<M> state(m, x.shape, exact_keys(x.shape));
    rows_after_keys(m, x, state, t.bc, listed);
    for (index_t i = 0; i < std::ssize(listed); i += t.Br)
      exact_rows(m, x, {i, std::min<index_t>(std::ssize(listed), i + t.Br)}, listed, t.Br, t.Bc);
  }
};

}  // namespace redblue::test::mutants
