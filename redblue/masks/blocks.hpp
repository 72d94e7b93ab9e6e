#pragma once
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "redblue/language/range.hpp"
#include "redblue/language/words.hpp"

namespace redblue {

/// n rows or keys cut into blocks of `size`; the ragged block is the last one, or the first.
struct Blocks {
  index_t n = 0;
  index_t size = 1;  ///< of the largest
  bool ragged_first = false;
  /// Where each block begins, and n, if a pattern cuts where its own blocks end; the pattern holds them.
  std::span<const index_t> begins{};

  constexpr index_t count() const { return begins.empty() ? ceil_div(n, size) : std::ssize(begins) - 1; }
  constexpr Range operator()(index_t i) const {
    if (!begins.empty()) return {begins[static_cast<std::size_t>(i)], begins[static_cast<std::size_t>(i) + 1]};
    if (!ragged_first) return {i * size, std::min(n, (i + 1) * size)};
    const index_t end = n - (count() - 1 - i) * size;
    return {std::max<index_t>(0, end - size), end};
  }
  /// The block that holds row or key i.
  constexpr index_t of(index_t i) const {
    if (!begins.empty()) return std::ranges::upper_bound(begins, i) - begins.begin() - 1;
    return ragged_first ? count() - 1 - (n - 1 - i) / size : i / size;
  }
};

/// The largest of some numbers, one for each block, over the blocks of each size that occurs.
class MostBySize {
 public:
  struct Most {
    index_t size, most;
    friend bool operator==(const Most&, const Most&) = default;
  };
  void add(index_t size, index_t number) {
    for (Most& m : list_)
      if (m.size == size) return void(m.most = std::max(m.most, number));
    list_.push_back({size, number});
  }
  friend bool operator==(const MostBySize&, const MostBySize&) = default;
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }
  /// The largest words(size, number); none without a block.
  template <class BlockWords>
  Words largest(const BlockWords& words) const {
    Words most;
    for (const auto& [size, number] : list_) most = std::max(most, Words(words(size, number)));
    return most;
  }

 private:
  std::vector<Most> list_;
};

}  // namespace redblue
