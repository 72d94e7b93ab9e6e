#pragma once
#include <functional>

#include "redblue/machines/passing.hpp"

namespace redblue::machine {

/// Calls back after every round of an `each` of another machine, with the machine of the worker that ran it and on its
/// thread: for progress bars. An empty function is not called.
template <class Base>
class Observed : public Passing<Observed<Base>, Base> {
 public:
  using Callback = std::function<void(const Base&)>;
  /// The callback must outlive this.
  Observed(Base& base, const Callback& callback) : Passing<Observed, Base>(base), callback_(callback) {}

  int workers() const { return this->base().workers(); }
  int worker() const { return this->base().worker(); }

  template <class Body>
  void each(index_t n, const Body& body) {
    this->base().each(n, [&](Base& base, index_t i) {
      if (&base == &this->base()) {
        body(*this, i);
      } else {
        Observed worker(base, callback_);
        body(worker, i);
      }
      if (callback_) callback_(base);
    });
  }

 private:
  const Callback& callback_;
};

}  // namespace redblue::machine
