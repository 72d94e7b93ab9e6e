#pragma once
#include <array>
#include <compare>
#include <cstddef>
#include <stdexcept>
#include <string_view>

#include "redblue/language/types.hpp"

/// How kernels divide. A kernel on whole tiles is the same kernel on parts of them, one part after another: that is how
/// a level of memory below the tiles carries it out (redblue/levels/).
namespace redblue::kernel {

/// What the rows and columns of each argument go along, as the subscripts of a sum: "~ij i. i. i. i. j. j. ij .." has
/// an argument for each word, with a letter for its rows and one for its columns. A dot is a side that is taken whole.
/// In kernels that know a place, i are its queries and j its keys. A tilde marks an argument that holds nothing which
/// is read before or after the call.
///
/// The kernel may be run on one range of each letter after another. Ranges of the letter that `streams` are to be taken
/// in order: what they add up to stays in the arguments that do not have it. Ranges of other letters are independent.
struct Axes {
  static constexpr std::size_t kMost = 16;  ///< arguments
  struct Of {
    char rows = '.', cols = '.';
    bool scratch = false;
    constexpr bool has(char axis) const { return rows == axis || cols == axis; }
    friend constexpr auto operator<=>(const Of&, const Of&) = default;
  };
  std::array<Of, kMost> of{};
  std::size_t size = 0;
  char streams = '.';

  friend constexpr auto operator<=>(const Axes&, const Axes&) = default;

  constexpr Axes() = default;
  consteval explicit Axes(std::string_view text, char streams = '.') : streams(streams) {
    while (!text.empty()) {
      const std::size_t end = text.find(' ');
      std::string_view word = text.substr(0, end);
      text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
      const bool scratch = word.front() == '~';
      if (scratch) word.remove_prefix(1);
      if (word.size() != 2 || size == kMost) throw std::logic_error("an argument has two letters");
      of[size++] = {word[0], word[1], scratch};
    }
  }
};

}  // namespace redblue::kernel
