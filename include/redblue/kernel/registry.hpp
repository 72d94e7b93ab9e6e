#pragma once
#include <cmath>
#include <optional>
#include <type_traits>
#include <variant>

#include "redblue/kernel/attention.hpp"
#include "redblue/kernel/backward.hpp"
#include "redblue/kernel/coreset.hpp"
#include "redblue/kernel/feature_maps.hpp"
#include "redblue/kernel/gradient.hpp"
#include "redblue/kernel/landmarks.hpp"
#include "redblue/kernel/materialised.hpp"
#include "redblue/kernel/modifiers.hpp"
#include "redblue/kernel/pair_modifiers.hpp"
#include "redblue/kernel/pairs.hpp"
#include "redblue/kernel/polynomial_weights.hpp"
#include "redblue/kernel/row_polynomials.hpp"
#include "redblue/kernel/sorting.hpp"

/// Every plain kernel by name: what a trace can hold.
namespace redblue::kernel {

using AnyPlainKernel = std::variant<
    ModifyScores, Drop, Multiply, BeginWithSinks, AddSinks, AddSinkWeights, SinksOver, AddSinkGradients,
    AddBiasGradient, AddSinkBiasGradient, Zero, Scale, Add, Gemm, Scores, Hide, StatisticsInit, SoftmaxInit,
    StatisticsAdd, OnlineSoftmax, TileSoftmax, LogSum, DivideRows, ScaleRows, WeightsAccumulate, NormaliseRows,
    NormaliseAndDrop, BlockSoftmax, MergeLse, MergeRows, MergeOutput, UnshiftedExp, AddRowSums, Log, DivideAccumulate,
    Weights, ScoreGradient, ScoreGradientOver, RowDots, ValueGradients, GemmOver, ZeroOver, NoKeysOver, AddNormalised,
    AddRowDots, AddScoreGradient, Copy, PairProducts, PairStatistics, PairWeights, PairSubtract, ScaleByWeights,
    PairAccumulate, PairScores, PairValueGradients, PairWeightsAccumulate, PairSoftmax, PairRowDots, PairTimesColumn,
    PairDrop, PairHide, PairModify, PairBias, PairBiasGradient, AddMonomials, ApplyMonomials, DifferentiateMonomials,
    DivisionGradients, PolynomialWeights, AddUpRows, SubtractFromRows, KeepLongest, LongestRow, RadiusNumber, SetTo,
    AddElu, ApplyElu, RandomFeatures, MinusInfinity, RescaleState, RescaleRows, AddColumnSums, ProjectRows, SoftmaxRows,
    PseudoInverseStart, PseudoInverseStep, MultiplyFromLeft, ProjectRow, Larger, AddRounded, SmyrfKeys, SortPairs,
    SmallestFirst, SignBucket, RotationBucket, Count, FirstPlaces, TakePlace, AddToScores, UnitScores, HideItself,
    ResumeSoftmax, HideByPosition, PivotedCholesky, InterpolationWeights, AddValues, ClipColumns, ClippedProductOver>;

namespace detail {
/// p <- value, if value is one of P: a whole number for integers, 0 or 1 for bool, a position in the list for Score.
template <class P>
bool set_parameter(P& p, double value) {
  if constexpr (std::is_same_v<P, index_t>)
    if (std::isinf(value)) {
      p = value > 0 ? Mask::kFar : -Mask::kFar;
      return true;
    }
  if constexpr (!std::is_same_v<P, double>) {
    constexpr double kLargest = 0x1p53;  // beyond, not every whole number is a double
    const bool is_signed = std::is_same_v<P, index_t>;
    const double most = std::is_same_v<P, bool> ? 1 : std::is_same_v<P, Score> ? kScoreNames.size() - 1 : kLargest;
    if (!(value >= (is_signed ? -most : 0) && value <= most) || value != std::floor(value)) return false;
  }
  p = static_cast<P>(value);
  return true;
}

template <class K>
bool set_if_named(AnyPlainKernel& out, std::string_view name, std::span<const double> values) {
  if (name != K::name) return false;
  K k;
  if constexpr (requires { k.parameters(); }) {
    if (values.size() != K::parameter_names.size()) return false;
    std::size_t i = 0;
    if (!std::apply([&](auto&... p) { return (set_parameter(p, values[i++]) && ...); }, k.parameters())) return false;
  } else if (!values.empty()) {
    return false;
  }
  out = k;
  return true;
}
template <class... K>
std::optional<AnyPlainKernel> make_plain(std::variant<K...>*, std::string_view name, std::span<const double> values) {
  AnyPlainKernel k;
  return (set_if_named<K>(k, name, values) || ...) ? std::optional(k) : std::nullopt;
}
}  // namespace detail

/// The kernel of that name with these parameters, in the order of its parameter_names; nothing if there is none, or
/// a value is not of its parameter's type.
inline std::optional<AnyPlainKernel> make_plain(std::string_view name, std::span<const double> values) {
  return detail::make_plain(static_cast<AnyPlainKernel*>(nullptr), name, values);
}

/// Any plain kernel of the list.
template <class K>
AnyPlainKernel to_plain(const K& k) {
  if constexpr (std::constructible_from<AnyPlainKernel, K>) {
    return k;
  } else {
    AnyPlainKernel plain = make_plain(name_of(k), parameters_of(k)).value();
    std::visit(
        [&](auto& known) {
          if constexpr (requires { known.place; }) known.place = *place_of(k);  // its pattern is no number
        },
        plain);
    return plain;
  }
}

}  // namespace redblue::kernel
