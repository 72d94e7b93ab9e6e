#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "redblue/language/types.hpp"

namespace redblue {

/// The order of the dimensions of an array in memory, outermost first, in letters: b batch, h heads, n or s tokens of a
/// sequence, d features. A letter that is missing is a dimension of 1. The names of every face: --layout, layout= of
/// Python, redblue_strides of C.
///
/// ```cpp
/// std::vector<float> x(2 * 8 * 100 * 64);
/// const std::array<redblue::index_t, 4> shape{2, 8, 100, 64};  // [batch, heads, tokens, features]
/// redblue::Tensor t(x, shape, redblue::Dimensions("bshd").strides(shape));
/// ```
class Dimensions {
 public:
  /// "bhsd", "bhnd", "bshd", "bnhd", "hsd", ...
  static const std::vector<std::string>& names();
  /// For messages about another name: "give one of bhsd, bhnd, ...".
  static std::string choices();
  /// The result is empty for another name.
  static std::optional<Dimensions> from_name(std::string_view name);
  /// Throws InvalidProblem for another name.
  explicit Dimensions(std::string_view name);

  /// Its letters, with n.
  const std::string& letters() const { return letters_; }
  bool has_heads() const { return letters_.find('h') != std::string::npos; }
  /// Are the heads of a token side by side?
  bool tokens_first() const { return has_heads() && letters_.find('n') < letters_.find('h'); }
  /// A dense array of this shape [batch, heads, tokens, features] has these, in elements. Dimensions that are missing
  /// are 1: throws InvalidProblem where they are not.
  std::array<index_t, 4> strides(const std::array<index_t, 4>& shape) const;

 private:
  std::string name_, letters_;
};

}  // namespace redblue
