#pragma once
#include <map>
#include <vector>

#include "redblue/ranks/steps.hpp"
#include "runtime/filled.hpp"

namespace redblue::test {

/// The tensors of a problem, spread over ranks.
class Shared {
 public:
  Shared(const ranks::World& world, Filled& whole) : world_(world), whole_(whole) {
    for (int r = 0; r < world.ranks(); ++r) {
      std::map<SlowArray, Array> own;
      for (auto& [a, array] : whole.arrays) {
        Tensor t = array.tensor();
        const bool spread = is_spread(a, t);
        if (spread) t.shape[2] = rows_at(a, r).count();
        Array part(t.dtype, t.shape, Strides::bshd);
        part.set(spread ? rows_of(a, r) : array.get());
        own.emplace(a, std::move(part));
      }
      arrays_.push_back(std::move(own));
    }
  }
  std::vector<Tensors> tensors() {
    std::vector<Tensors> list;
    for (auto& own : arrays_) {
      Tensors t;
      for (auto& [a, array] : own) t[a] = array.tensor();
      list.push_back(t);
    }
    return list;
  }
  /// Puts the outputs of all ranks together. Of what all of them have, that of rank 0; has another rank other bits?
  bool collect() {
    bool alike = true;
    for (const SlowArray a : outputs_of(whole_.p)) {
      if (!is_spread(a, whole_.arrays.at(a).tensor())) {
        const std::vector<double> first = arrays_[0].at(a).get();
        for (auto& own : arrays_) alike = alike && own.at(a).get() == first;
        whole_.arrays.at(a).set(first);
        continue;
      }
      std::vector<double> all = whole_.arrays.at(a).get();
      for (int r = 0; r < world_.ranks(); ++r) {
        const std::vector<double> own = arrays_[static_cast<std::size_t>(r)].at(a).get();
        std::size_t next = 0;
        for_words(a, r, [&](std::size_t at) { all[at] = own[next++]; });
      }
      whole_.arrays.at(a).set(all);
    }
    return alike;
  }

 private:
  /// The rows of a bias are those of its queries, where it has one for each.
  static bool is_spread(SlowArray a, const Tensor& t) {
    return !is_of_modifiers(a) || (is_like_bias(a) && t.shape[2] != 1);
  }
  static bool is_like_bias(SlowArray a) { return a == SlowArray::bias || a == SlowArray::dBias; }
  const ranks::Rows& rows_at(SlowArray a, int r) const {
    return world_.rows_of(is_like_bias(a) ? Side::queries : side_of(a), r);
  }
  /// f(place in the whole) of each word of an array that a rank has, in the order in which it has them.
  template <class F>
  void for_words(SlowArray a, int r, const F& f) {
    const auto shape = whole_.arrays.at(a).tensor().shape;
    const std::vector<index_t> positions = rows_at(a, r).positions();
    for (index_t i = 0; i < shape[0] * shape[1]; ++i)
      for (const index_t p : positions)
        for (index_t c = 0; c < shape[3]; ++c) f(static_cast<std::size_t>((i * shape[2] + p) * shape[3] + c));
  }
  std::vector<double> rows_of(SlowArray a, int r) {
    const std::vector<double> all = whole_.arrays.at(a).get();
    std::vector<double> own;
    for_words(a, r, [&](std::size_t at) { own.push_back(all[at]); });
    return own;
  }

  const ranks::World& world_;
  Filled& whole_;
  std::vector<std::map<SlowArray, Array>> arrays_;
};

}  // namespace redblue::test
