#pragma once
#include <functional>

#include "redblue/core/machine.hpp"

namespace redblue::machine {

/// Calls back after every round of an `each` of another machine: for progress bars.
template <class Base>
class Observed : public MachineFace<Observed<Base>> {
 public:
  Observed(Base& base, std::function<void()> callback) : base_(base), callback_(std::move(callback)) {}

  index_t open(Shape s, Layout layout) { return base_.open(s, layout); }
  void close(index_t depth, Shape s) { base_.close(depth, s); }
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
  template <class Body>
  void each(index_t n, const Body& body) {
    base_.each(n, [&](Base&, index_t i) {
      body(*this, i);
      if (callback_) callback_();
    });
  }

 private:
  Base& base_;
  std::function<void()> callback_;
};

}  // namespace redblue::machine
