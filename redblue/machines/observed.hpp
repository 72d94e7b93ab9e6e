#pragma once
#include <functional>
#include <limits>

#include "redblue/machines/passing.hpp"

namespace redblue::machine {

/// Calls back after every round of an `each` of another machine, and within one whenever a worker has loaded or stored
/// `words` more words, with the machine of that worker and on its thread: for progress bars, and for what goes on
/// beside a run. An empty function is not called.
template <class Base>
class Observed : public Passing<Observed<Base>, Base> {
 public:
  using Callback = std::function<void(const Base&)>;
  static constexpr index_t kRoundsAlone = std::numeric_limits<index_t>::max();
  /// The callback must outlive this.
  Observed(Base& base, const Callback& callback, index_t words = kRoundsAlone)
      : Passing<Observed, Base>(base), callback_(callback), words_(words) {}

  int workers() const { return this->base().workers(); }
  int worker() const { return this->base().worker(); }

  void read(const Arg& tile, const Block& b) {
    this->base().read(tile, b);
    add(b);
  }
  void write(const Block& b, const Arg& tile) {
    this->base().write(b, tile);
    add(b);
  }

  template <class Body>
  void each(index_t n, const Body& body) {
    this->base().each(n, [&](Base& base, index_t i) {
      const auto round = [&](Observed& worker) {
        body(worker, i);
        worker.call_back();
      };
      if (&base == &this->base()) return round(*this);
      Observed worker(base, callback_, words_);
      round(worker);
    });
  }

 private:
  void add(const Block& b) {
    moved_ += b.shape.words();
    if (moved_ >= words_) call_back();
  }
  void call_back() {
    moved_ = 0;
    if (callback_) callback_(this->base());
  }

  const Callback& callback_;
  index_t words_, moved_ = 0;  ///< between two calls, and since the last one
};

}  // namespace redblue::machine
