#pragma once
#include "redblue/kernels/kinds.hpp"
#include "redblue/methods/kernels/coreset.hpp"
#include "redblue/methods/kernels/feature_maps.hpp"
#include "redblue/methods/kernels/landmarks.hpp"
#include "redblue/methods/kernels/polynomial_weights.hpp"
#include "redblue/methods/kernels/row_polynomials.hpp"
#include "redblue/methods/kernels/sorting.hpp"

/// The kernels of approximations. Include it where schedules of methods run on machine::Any: AnyKernel then takes what
/// is compiled once, in redblue/methods/kernels/kinds.cpp.
namespace redblue::kernel {

using MethodKernels =
    std::tuple<AddMonomials, ApplyMonomials, DifferentiateMonomials, DivisionGradients, PolynomialWeights, AddUpRows,
               SubtractFromRows, KeepLongest, LongestRow, RadiusNumber, SpreadNumber, CentredScores,
               ExactLessPolynomial, SetTo, AddElu, ApplyElu, RandomFeatures, MinusInfinity, RescaleState, RescaleRows,
               AddColumnSums, ProjectRows, SoftmaxRows, PseudoInverseStart, PseudoInverseStep, MultiplyFromLeft,
               ProjectRow, Larger, AddRounded, SmyrfKeys, SortPairs, SmallestFirst, SignBucket, RotationBucket, Count,
               FirstPlaces, TakePlace, AddToScores, UnitScores, HideItself, ResumeSoftmax, HideByPosition,
               PivotedCholesky, InterpolationWeights, AddValues, ClipColumns, ClippedProductOver>;

namespace detail {

extern const std::array<Kind, std::tuple_size_v<MethodKernels>> kMethodKinds;

template <IsIn<MethodKernels> K>
struct CompiledKind<K> {
  static const Kind& kind() { return kMethodKinds[kNumber<K, MethodKernels>]; }
};

}  // namespace detail

}  // namespace redblue::kernel
