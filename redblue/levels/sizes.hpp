#pragma once
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "redblue/language/words.hpp"
#include "redblue/levels/division.hpp"

/// The ranges in which a level carries out a call: as large as its memory holds.
namespace redblue::levels {

/// Ranges of letters that stay are multiples of `kept`, where they are shorter than their letter; ranges of the letter
/// that streams have `passing` rows or columns, or all where that takes no more memory. There are `parts` independent
/// parts, where a letter is long enough: one for each worker. Where the memory is too small for such ranges, they are
/// shorter.
struct Grain {
  index_t kept = 1;
  index_t passing = 1;
  index_t parts = 1;
  friend bool operator==(const Grain&, const Grain&) = default;
};

/// A level below the outermost: its words of memory, and the grain of ranges.
struct Inner {
  Words M;
  Grain grain{};
};

/// The most words that a call with ranges of these sizes holds at a time. `last`: the level runs implementations;
/// the one below any other has what nobody reads after a call.
Words footprint_of(const kernel::AnyKernel& k, const Division& d, std::span<const Shape> shapes, const PerLetter& sizes,
                   bool last);
/// The words that it moves where no mask hides a pair.
Words words_of(const kernel::AnyKernel& k, const Division& d, std::span<const Shape> shapes, const PerLetter& sizes);
/// The sizes that move fewest words and hold at most its M; of those that move the same, the largest; null if M is too
/// small.
std::optional<PerLetter> choose_sizes(const kernel::AnyKernel& k, const Division& d, std::span<const Shape> shapes,
                                      const Inner& level, bool last);

/// What the words of a call depend on, but for what a mask hides.
struct CallKey {
  std::string_view kernel;
  bool first = false;
  std::vector<index_t> shapes;
  kernel::Axes axes{};

  CallKey(const kernel::AnyKernel& k, const kernel::Axes& axes, std::span<const Shape> shapes);
  friend auto operator<=>(const CallKey&, const CallKey&) = default;
};
/// Calls of one kernel on arguments of the same shapes, at one level.
struct Calls {
  std::size_t level;  ///< 0: the first of the inner levels
  CallKey call;
  PerLetter sizes;  ///< of ranges
  Words times;
  Words words;  ///< that all of them move
};

/// choose_sizes() of the calls met so far.
class ChosenSizes {
 public:
  ChosenSizes(const Inner& level, bool last) : level_(level), last_(last) {}
  /// Throws CapacityError where the level has not the words for the smallest ranges.
  const PerLetter& of(const kernel::AnyKernel& k, const Division& d, std::span<const Shape> shapes);

 private:
  Inner level_;
  bool last_;
  std::map<CallKey, PerLetter> known_;
};

}  // namespace redblue::levels
