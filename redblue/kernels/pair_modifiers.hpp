#pragma once
#include "redblue/kernels/pairs.hpp"

/// What a problem does to its scores and weights (kernels/modifiers.hpp), on tiles that hold one word for each pair
/// (kernels/pairs.hpp).
namespace redblue::kernel {

/// T <- T / (1 - share) for pairs whose weights are kept, 0 for those that are dropped.
struct PairDrop : OnPairs {
  static constexpr std::string_view name = "pair_drop";
  static constexpr std::array access{Access::update};
  static constexpr bool fits(Shape T) { return T.cols == 1; }
  static constexpr index_t macs(Shape) { return 0; }
  static constexpr std::array<std::string_view, 15> parameter_names{"share", "seed", "head",   "first_row", "first_col",
                                                                    "lo",    "hi",   "prefix", "group",     "row",
                                                                    "col",   "rows", "cols",   "first",     "count"};
  auto parameters() { return std::tuple_cat(drop.parameters(), parameters_of_box(place, extent)); }
  DropOfPairs drop{};
  PairDrop() = default;
  PairDrop(const DropOfPairs& drop, const PairBox& b) : OnPairs(b), drop(drop) {}
  bool fits_pattern(Shape T) const { return has_rows(T, {extent.count, 1}); }
  template <class T>
  void run(View<T> tile) const {
    const Drop at = drop.at(place);
    const T factor = static_cast<T>(at.factor());
    box().for_runs([&](index_t r, Range seen, index_t pair) {
      for (index_t j = seen.begin; j < seen.end; ++j) {
        T& word = tile[pair + j - seen.begin];
        word = at.kept(r, j, word, factor);
      }
    });
  }
};

/// T <- -inf for pairs of the box's interval mask that its pattern has not. T has a word for each pair of the mask.
struct PairHide : OnPairs {
  static constexpr std::string_view name = "pair_hide";
  static constexpr std::array access{Access::update};
  static constexpr bool fits(Shape T) { return T.cols == 1; }
  static constexpr index_t macs(Shape) { return 0; }
  static constexpr auto parameter_names = kPairBoxNames;
  auto parameters() { return parameters_of_box(place, extent); }
  using OnPairs::OnPairs;
  PairBox formed() const {
    PairBox b = box();
    b.place.mask.pattern = nullptr;
    return b;
  }
  bool fits_pattern(Shape T) const {
    const PairBox b = formed();
    return box().is_inside(b.rows, T.rows) && b.is_inside(b.rows, T.rows) && T.rows == b.pairs();
  }
  template <class T>
  void run(View<T> tile) const {
    formed().for_runs([&](index_t r, Range seen, index_t pair) {
      index_t j = seen.begin;
      const auto hide_until = [&](index_t end) {
        for (; j < std::min(end, seen.end); ++j) tile[pair + j - seen.begin] = kMinusInf<T>;
      };
      place.for_seen(r, extent.cols, [&](Range kept) {
        hide_until(kept.begin);
        j = std::max(j, kept.end);
      });
      hide_until(seen.end);
    });
  }
};

/// T <- softcap tanh(T / softcap) - slope |distance|, and F <- the derivative of the softcap, where F has words.
struct PairModify : OnPairs {
  static constexpr std::string_view name = "pair_modify";
  static constexpr std::array access{Access::update, Access::write, Access::read};
  static constexpr bool fits(Shape T, Shape F, Shape slopes) {
    return T.cols == 1 && (F == T || F.words() == 0) && slopes.cols <= 1;
  }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  static constexpr std::array<std::string_view, 12> parameter_names{
      "softcap", "slope_offset", "lo", "hi", "prefix", "group", "row", "col", "rows", "cols", "first", "count"};
  auto parameters() { return std::tuple_cat(std::tie(softcap, slope_offset), parameters_of_box(place, extent)); }
  double softcap = 0;
  index_t slope_offset = 0;  ///< as in ModifyScores
  PairModify() = default;
  PairModify(const ModifyScores& like, const PairBox& b)
      : OnPairs(b), softcap(like.softcap), slope_offset(like.slope_offset) {}
  bool fits_pattern(Shape T, Shape, Shape) const { return has_rows(T, {extent.count, 1}); }
  template <class T>
  void run(View<T> tile, View<T> F, View<const T> slopes) const {
    const ModifyScores at{softcap, slope_offset, place};
    box().for_runs([&](index_t r, Range seen, index_t pair) {
      const T slope = slopes.words() > 0 ? slopes[(place.row + r) % slopes.words()] : T(0);
      for (index_t j = seen.begin; j < seen.end; ++j) {
        const index_t k = pair + j - seen.begin;
        const auto [s, derivative] = softcapped(tile[k], static_cast<T>(softcap));
        tile[k] = s - slope * at.distance<T>(r, j);
        if (F.words() > 0) F[k] = derivative;
      }
    });
  }
};

/// Has T a word for each pair of the box, and a row of a bias one for each key of the window?
inline bool has_keys(const PairBox& b, Shape T, Shape bias) {
  return b.is_inside(b.cols, T.rows) && bias.cols == b.count && T.rows == b.pairs();
}

/// T_ij <- T_ij + bias_j, of the keys of the window.
struct PairBias : OnPairs {
  static constexpr std::string_view name = "pair_bias";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr bool fits(Shape T, Shape bias) { return T.cols == 1 && bias.rows == 1; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  static constexpr auto parameter_names = kPairBoxNames;
  auto parameters() { return parameters_of_box(place, extent); }
  using OnPairs::OnPairs;
  bool fits_pattern(Shape T, Shape bias) const { return has_keys(box(), T, bias); }
  template <class T>
  void run(View<T> tile, View<const T> bias) const {
    const Range window = extent.window();
    box().for_runs([&](index_t, Range seen, index_t pair) {
      const Range part = intersection(seen, window);
      for (index_t j = part.begin; j < part.end; ++j) tile[pair + j - seen.begin] += bias(0, j - window.begin);
    });
  }
};

/// dBias_j <- dBias_j + factor SUM_i T_ij, of the keys of the window.
struct PairBiasGradient : OnPairs {
  static constexpr std::string_view name = "pair_bias_gradient";
  static constexpr bool adds = true;
  static constexpr std::array access{Access::update, Access::read};
  static constexpr bool fits(Shape dBias, Shape T) { return PairBias::fits(T, dBias); }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  static constexpr std::array<std::string_view, 12> parameter_names{
      "first", "factor", "lo", "hi", "prefix", "group", "row", "col", "rows", "cols", "first_key", "count"};
  auto parameters() { return std::tuple_cat(std::tie(first, factor), parameters_of_box(place, extent)); }
  bool first = false;
  double factor = 1;
  PairBiasGradient() = default;
  PairBiasGradient(double factor, const PairBox& b) : OnPairs(b), factor(factor) {}
  bool fits_pattern(Shape dBias, Shape T) const { return has_keys(box(), T, dBias); }
  template <class T>
  void run(View<T> dBias, View<const T> tile) const {
    const Range window = extent.window();
    box().for_runs([&](index_t, Range seen, index_t pair) {
      const Range part = intersection(seen, window);
      for (index_t j = part.begin; j < part.end; ++j)
        dBias(0, j - window.begin) += static_cast<T>(factor) * tile[pair + j - seen.begin];
    });
  }
};

}  // namespace redblue::kernel
