#pragma once
#include <optional>
#include <variant>

#include "redblue/kernels/attention.hpp"
#include "redblue/kernels/backward.hpp"
#include "redblue/kernels/gradient.hpp"
#include "redblue/kernels/materialised.hpp"
#include "redblue/kernels/modifiers.hpp"
#include "redblue/kernels/pair_modifiers.hpp"
#include "redblue/kernels/pairs.hpp"
#include "redblue/methods/kernels/coreset.hpp"
#include "redblue/methods/kernels/feature_maps.hpp"
#include "redblue/methods/kernels/landmarks.hpp"
#include "redblue/methods/kernels/polynomial_weights.hpp"
#include "redblue/methods/kernels/row_polynomials.hpp"
#include "redblue/methods/kernels/sorting.hpp"

/// Every plain kernel by name: what a trace can hold.
namespace redblue::kernel {

using AnyPlainKernel = std::variant<
    ModifyScores, SoftcapGradient, Drop, Multiply, BeginWithSinks, AddSinks, AddSinkWeights, SinksOver,
    AddSinkGradients, AddBiasGradient, AddSinkBiasGradient, Zero, Scale, Add, Gemm, Scores, Hide, StatisticsInit,
    SoftmaxInit, StatisticsAdd, OnlineSoftmax, TileSoftmax, LogSum, DivideRows, ScaleRows, WeightsAccumulate,
    NormaliseRows, NormaliseAndDrop, BlockSoftmax, MergeLse, MergeRows, MergeOutput, UnshiftedExp, AddRowSums, Log,
    DivideAccumulate, Weights, ScoreGradient, RowDots, ValueGradients, GemmOver, ZeroOver, NoKeysOver, AddNormalised,
    AddRowDots, AddScoreGradient, Copy, PairProducts, PairStatistics, PairWeights, PairSubtract, ScaleByWeights,
    PairAccumulate, PairScores, PairValueGradients, PairWeightsAccumulate, PairSoftmax, PairRowDots, PairTimesColumn,
    PairDrop, PairHide, PairModify, PairBias, PairBiasGradient, AddMonomials, ApplyMonomials, DifferentiateMonomials,
    DivisionGradients, PolynomialWeights, AddUpRows, SubtractFromRows, KeepLongest, LongestRow, RadiusNumber,
    SpreadNumber, CentredScores, ExactLessPolynomial, SetTo, AddElu, ApplyElu, RandomFeatures, MinusInfinity,
    RescaleState, RescaleRows, AddColumnSums, ProjectRows, SoftmaxRows, PseudoInverseStart, PseudoInverseStep,
    MultiplyFromLeft, ProjectRow, Larger, AddRounded, SmyrfKeys, SortPairs, SmallestFirst, SignBucket, RotationBucket,
    Count, FirstPlaces, TakePlace, AddToScores, UnitScores, HideItself, ResumeSoftmax, HideByPosition, PivotedCholesky,
    InterpolationWeights, AddValues, ClipColumns, ClippedProductOver>;

/// The kernel of that name with these parameters, in the order of its parameter_names; nothing if there is none, or
/// a value is not of its parameter's type.
std::optional<AnyPlainKernel> make_plain(std::string_view name, std::span<const double> values);

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
