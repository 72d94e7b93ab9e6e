#pragma once
#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "redblue/language/data_machine.hpp"

namespace redblue::claims {

enum class Order : std::uint8_t { reverse, shuffled };

/// Runs the rounds of every `each` in another order: any order must do.
template <class Base>
class Reordered : public MachineFace<Reordered<Base>> {
 public:
  Reordered(Base& base, Order order) : base_(base), order_(order) {}

  index_t open(SlowArray array, Shape s, Layout layout) { return base_.open(array, s, layout); }
  void close(index_t depth, SlowArray array, Shape s) { base_.close(depth, array, s); }
  void read(const Arg& tile, const Block& b) { base_.read(tile, b); }
  void write(const Block& b, const Arg& tile) { base_.write(b, tile); }
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    base_.run(k, args);
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    base_.modify(k, args);
  }
  index_t read_index(Question question, const Arg& word, index_t worst)
    requires DataMachine<Base>
  {
    return base_.read_index(question, word, worst);
  }
  template <class Body>
  void each(index_t n, const Body& body) {
    std::vector<index_t> rounds(static_cast<std::size_t>(n));
    std::iota(rounds.begin(), rounds.end(), index_t{0});
    if (order_ == Order::reverse)
      std::reverse(rounds.begin(), rounds.end());
    else
      std::shuffle(rounds.begin(), rounds.end(), random_);
    base_.each(n, [&](Base&, index_t i) { body(*this, rounds[static_cast<std::size_t>(i)]); });
  }

 private:
  Base& base_;
  Order order_;
  std::mt19937 random_{7};
};

}  // namespace redblue::claims
