#pragma once
#include "redblue/language/data_machine.hpp"

namespace redblue::machine {

/// A machine that wraps another and has nothing to add: it passes every operation and every hint on. A machine that
/// adds something derives from it (Self is its type) and hides the operations that it changes, so an operation that the
/// language gains is written here once.
///
/// `each` runs one round after another on this machine. A machine whose base has workers hides `each`, `workers` and
/// `worker`.
template <class Self, class Base>
class Passing : public MachineFace<Self> {
 public:
  explicit Passing(Base& base) : base_(base) {}

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
  void store_hint(index_t depth, const Block& b) { base_.store_hint(depth, b); }
  void read_hint(const Block& b) { base_.read_hint(b); }
  index_t read_index(Question question, const Arg& word, index_t worst)
    requires DataMachine<Base>
  {
    return base_.read_index(question, word, worst);
  }
  template <class Body>
  void each(index_t n, const Body& body) {
    for (index_t i = 0; i < n; ++i) body(static_cast<Self&>(*this), i);
  }

 protected:
  Base& base() { return base_; }
  const Base& base() const { return base_; }

 private:
  Base& base_;
};

}  // namespace redblue::machine
