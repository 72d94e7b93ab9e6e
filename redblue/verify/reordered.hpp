#pragma once
#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "redblue/machines/passing.hpp"

namespace redblue::claims {

enum class Order : std::uint8_t { reverse, shuffled };

/// Runs the rounds of every `each` in another order: any order must do.
template <class Base>
class Reordered : public machine::Passing<Reordered<Base>, Base> {
 public:
  Reordered(Base& base, Order order) : machine::Passing<Reordered, Base>(base), order_(order) {}

  template <class Body>
  void each(index_t n, const Body& body) {
    std::vector<index_t> rounds(static_cast<std::size_t>(n));
    std::iota(rounds.begin(), rounds.end(), index_t{0});
    if (order_ == Order::reverse)
      std::reverse(rounds.begin(), rounds.end());
    else
      std::shuffle(rounds.begin(), rounds.end(), random_);
    for (const index_t i : rounds) body(*this, i);
  }

 private:
  Order order_;
  std::mt19937 random_{7};
};

}  // namespace redblue::claims
