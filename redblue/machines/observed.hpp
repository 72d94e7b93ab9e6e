#pragma once
#include <functional>

#include "redblue/kernels/kernel.hpp"
#include "redblue/language/data_machine.hpp"

namespace redblue::machine {

/// Calls back after every round of an `each` of another machine, with the machine of the worker that ran it and on its
/// thread: for progress bars. An empty function is not called.
template <class Base>
class Observed : public MachineFace<Observed<Base>> {
 public:
  using Callback = std::function<void(const Base&)>;
  /// The callback must outlive this.
  Observed(Base& base, const Callback& callback) : base_(base), callback_(callback) {}

  int workers() const { return base_.workers(); }
  int worker() const { return base_.worker(); }

  index_t open(SlowArray array, Shape s, Layout layout) { return base_.open(array, s, layout); }
  void close(index_t depth, SlowArray array, Shape s) { base_.close(depth, array, s); }
  void store_hint(index_t depth, const Block& b) { base_.store_hint(depth, b); }
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
    base_.each(n, [&](Base& base, index_t i) {
      if (&base == &base_) {
        body(*this, i);
      } else {
        Observed worker(base, callback_);
        body(worker, i);
      }
      if (callback_) callback_(base);
    });
  }

 private:
  Base& base_;
  const Callback& callback_;
};

}  // namespace redblue::machine
