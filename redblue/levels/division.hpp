#pragma once
#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "redblue/kernels/kernel.hpp"

/// How one call of a kernel divides: into ranges of the letters of its axes (kernels/axes.hpp).
namespace redblue::levels {

/// A number for each letter.
struct PerLetter {
  static constexpr std::string_view letters = "ijk";
  static constexpr std::size_t place_of(char letter) { return static_cast<std::size_t>(letter - letters.front()); }
  std::array<index_t, letters.size()> of{};

  constexpr index_t& operator[](char letter) { return of[place_of(letter)]; }
  constexpr index_t operator[](char letter) const { return of[place_of(letter)]; }
  friend constexpr bool operator==(const PerLetter&, const PerLetter&) = default;
};
/// A range for each letter.
struct Ranges {
  std::array<Range, PerLetter::letters.size()> of{};

  constexpr Range& operator[](char letter) { return of[PerLetter::place_of(letter)]; }
  constexpr Range operator[](char letter) const { return of[PerLetter::place_of(letter)]; }
};

/// How this call divides. Throws Unsupported where that is not known.
kernel::Axes axes_of_call(const kernel::AnyKernel& k, std::span<const Shape> shapes);
/// How far each letter goes; 0: no argument has it.
PerLetter extents_of(const kernel::Axes& axes, std::span<const Shape> shapes);

class Division {
 public:
  /// Throws Unsupported where it is not known how the kernel divides.
  Division(const kernel::AnyKernel& k, std::span<const Shape> shapes);

  const kernel::Axes& axes() const { return axes_; }
  char streams() const { return axes_.streams; }
  /// How far a letter goes; 0: no argument has it.
  index_t extent(char letter) const { return extent_[letter]; }
  bool has(std::size_t arg, char letter) const { return letter != '.' && axes_.of[arg].has(letter); }
  bool is_scratch(std::size_t arg) const { return axes_.of[arg].scratch; }
  /// Does it pass word by word? Then it is read once; what several parts of a composite read is a tile.
  bool passes(std::size_t arg) const { return passes_[arg]; }

  /// The part of an argument, whose shape is given, in these ranges. A side that is shorter than its letter, such as a
  /// bias that all rows share, is taken whole.
  Range rows(std::size_t arg, Shape s, const Ranges& at) const { return side(axes_.of[arg].rows, s.rows, at); }
  Range cols(std::size_t arg, Shape s, const Ranges& at) const { return side(axes_.of[arg].cols, s.cols, at); }

  /// How many independent parts there are where ranges have these sizes, and the ranges of part b; that of the letter
  /// which streams is all of it.
  index_t parts(const PerLetter& sizes) const;
  Ranges part(const PerLetter& sizes, index_t b) const;
  /// What the letter that streams goes over in this part: pairs that the mask hides from all of it are left out where
  /// nothing is to be done for them.
  Range streamed(const Ranges& part) const;

 private:
  Range side(char letter, index_t length, const Ranges& at) const {
    return letter != '.' && length == extent(letter) ? at[letter] : Range{0, length};
  }

  kernel::Axes axes_;
  PerLetter extent_;
  std::array<bool, kernel::Axes::kMost> passes_{};
  const Place* place_ = nullptr;  ///< where it may leave out hidden pairs
};

}  // namespace redblue::levels
