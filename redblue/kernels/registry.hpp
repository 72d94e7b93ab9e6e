#pragma once
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "redblue/kernels/attention.hpp"
#include "redblue/kernels/backward.hpp"
#include "redblue/kernels/gradient.hpp"
#include "redblue/kernels/materialised.hpp"
#include "redblue/kernels/modifiers.hpp"
#include "redblue/kernels/pair_modifiers.hpp"
#include "redblue/kernels/pairs.hpp"
#include "redblue/kernels/second.hpp"

/// Plain kernels by value, whatever their type, and by name: what a trace holds.
namespace redblue::kernel {

/// redblue's own for exact attention.
using ExactKernels =
    std::tuple<ModifyScores, SoftcapGradient, Drop, Multiply, BeginWithSinks, AddSinks, AddSinkWeights, SinksOver,
               BeginWithMovingSinks, AddMovingSinkGradients, AddSinkGradients, AddBiasGradient, AddSinkBiasGradient,
               AddLseBiasGradient, Zero, Scale, Add, Subtract, Gemm, Scores, Hide, StatisticsInit, SoftmaxInit,
               StatisticsAdd, OnlineSoftmax, TileSoftmax, LogSum, DivideRows, ScaleRows, WeightsAccumulate,
               BeginWithGiven, NormaliseRows, NormaliseAndDrop, BlockSoftmax, MergeLse, JoinLse, MergeRows, MergeOutput,
               UnshiftedExp, AddRowSums, Log, DivideAccumulate, Weights, ScoreGradient, RowDots, ValueGradients,
               GemmOver, ZeroOver, NoKeysOver, AddNormalised, AddRowDots, AddScoreGradient, Copy, PairProducts,
               PairStatistics, PairWeights, PairSubtract, ScaleByWeights, PairAccumulate, PairScores,
               PairValueGradients, PairWeightsAccumulate, PairSoftmax, PairRowDots, PairTimesColumn, PairDrop, PairHide,
               PairModify, PairBias, PairBiasGradient, MergeGivenLse, SubtractScaledRows, RowDotsAndRest,
               ThroughSoftcap, SecondGradient>;

/// A plain kernel of any type, held by value. Copies share it.
class PlainKernel {
 public:
  PlainKernel() = default;  ///< none
  template <Kernel K>
  PlainKernel(const K& k) : PlainKernel(AnyKernel(k)) {}  // NOLINT(google-explicit-constructor): any kernel will do
  explicit PlainKernel(const AnyKernel& k) : PlainKernel(k.kind(), k.copy(), k.first()) {}
  PlainKernel(const Kind& kind, std::shared_ptr<void> kernel, bool first)
      : kind_(&kind), kernel_(std::move(kernel)), first_(first) {}

  /// This must outlive the answer.
  AnyKernel any() const { return {*kind_, kernel_.get(), first_}; }
  /// Null if it is of another type.
  template <Kernel K>
  const K* get_if() const {
    return kind_ != nullptr && kind_->name == K::name ? static_cast<const K*>(kernel_.get()) : nullptr;
  }
  const Place* place() const { return kind_ == nullptr ? nullptr : any().place(); }
  std::span<const std::string_view> parameter_names() const { return kind_->parameter_names; }
  /// Sets the pattern of its place. False where it has none.
  bool set_pattern(const Pattern* pattern) {
    if (place() == nullptr) return false;
    PlainKernel own(any());
    const_cast<Place*>(own.place())->mask.pattern = pattern;  // of its own copy
    *this = std::move(own);
    return true;
  }

 private:
  const Kind* kind_ = nullptr;
  std::shared_ptr<void> kernel_;
  bool first_ = false;
};

/// Lists of kernels; redblue's own are those of kernels/ and of methods/, where they are built.
std::span<const std::span<const Kind>> built_in_kinds();

/// The plain kernel of that name with these parameters, in the order of its parameter_names; nothing if there is none,
/// or a value is not of its parameter's type.
std::optional<PlainKernel> make_plain(std::string_view name, std::span<const double> values);

}  // namespace redblue::kernel
