#pragma once
#include "redblue/machines/passing.hpp"

namespace redblue::claims {

/// Makes one slip in any schedule: of the loads (or stores, or updates of slow memory) that pass through, number
/// `target` is left out or done twice. What is left out reaches neither the counter nor the referee behind.
enum class Slip { none, skips_a_load, loads_twice, skips_a_store, stores_twice, skips_an_update, updates_twice };

template <class Base>
class Sabotaged : public machine::Passing<Sabotaged<Base>, Base> {
  using Passes = machine::Passing<Sabotaged, Base>;

 public:
  Sabotaged(Base& base, Slip slip, index_t target) : Passes(base), slip_(slip), target_(target) {}

  index_t loads() const { return loads_; }
  index_t stores() const { return stores_; }
  index_t updates() const { return updates_; }

  void read(const Arg& tile, const Block& b) {
    const bool hit = b.shape.words() > 0 && loads_++ == target_;
    if (hit && slip_ == Slip::skips_a_load) return;
    Passes::read(tile, b);
    if (hit && slip_ == Slip::loads_twice) Passes::read(tile, b);
  }
  void write(const Block& b, const Arg& tile) {
    const bool hit = b.shape.words() > 0 && stores_++ == target_;
    if (hit && slip_ == Slip::skips_a_store) return;
    Passes::write(b, tile);
    if (hit && slip_ == Slip::stores_twice) Passes::write(b, tile);
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    const bool hit = args[0].shape().words() > 0 && updates_++ == target_;
    if (hit && slip_ == Slip::skips_an_update) return;
    Passes::modify(k, args);
    if (hit && slip_ == Slip::updates_twice) Passes::modify(k, args);
  }

 private:
  Slip slip_;
  index_t target_;
  index_t loads_ = 0;
  index_t stores_ = 0;
  index_t updates_ = 0;
};

}  // namespace redblue::claims
