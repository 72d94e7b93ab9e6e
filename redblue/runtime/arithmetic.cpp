#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "redblue/runtime/run.hpp"

/// Which problems and tensors an arithmetic is for.
namespace redblue {

namespace {

void require_bf16(const Problem& p, const Tensors& tensors) {
  if (p.op != Operation::forward && p.op != Operation::backward)
    throw Unsupported(
        fmt::format("compute type bf16 for {}: bf16 products are for forward and backward; f32 and f64 are for all",
                    name_of(p.op)));
  if (p.op == Operation::backward && (p.score != Score::softmax || p.method_kind() != MethodKind::exact ||
                                      p.softcap > 0 || p.alibi || p.dropout > 0 || p.bias))
    throw Unsupported(
        "compute type bf16 for backward: it takes exact attention with the softmax, without bias, ALiBi, softcap and "
        "dropout; f32 takes them all");
  for (const SlowArray a : plan::inputs_of(p.op)) {
    if (is_of_modifiers(a) || a == SlowArray::O || is_statistic(a)) continue;
    const bool int8 = tensors[a].dtype == DType::int8 && (a == SlowArray::K || a == SlowArray::V);
    if ((tensors[a].dtype != DType::bf16 && !int8) || tensors[a].strides[3] != 1)
      throw Unsupported(fmt::format(
          "compute type bf16: {} must be bf16{}, the features of a row side by side; f32 takes any type and "
          "strides",
          tensor_name(a), a == SlowArray::K || a == SlowArray::V ? " or int8" : ""));
  }
}

/// Sums that go on from run to run.
void require_accumulators(DType compute, const Problem& p, const Tensors& tensors) {
  const DType word = compute == DType::f64 ? DType::f64 : DType::f32;
  for (const SlowArray a : outputs_of(p))
    if (adds_to(p, a) && tensors[a].dtype != word)
      throw Unsupported(
          fmt::format("{} is {}: parts are added in the type of the arithmetic, {}, for another type would round each "
                      "of them; convert the sum at the end",
                      tensor_name(a), name_of(tensors[a].dtype), name_of(word)));
}

/// Scores are divided by it and multiplied with it.
void require_softcap(DType compute, double softcap) {
  const bool narrow = compute != DType::f64;
  if (narrow && !std::isfinite(static_cast<float>(softcap)))
    throw InvalidProblem(fmt::format("softcap = {} is beyond f32: leave it out, or compute in f64", softcap));
  const double least = narrow ? double{std::numeric_limits<float>::min()} : std::numeric_limits<double>::min();
  if (softcap != 0 && softcap < least)
    throw InvalidProblem(
        fmt::format("softcap = {} is below the smallest normal number of {}, {}: give more, or 0 for none{}", softcap,
                    narrow ? "f32" : "f64", least, narrow ? ", or compute in f64" : ""));
}

/// Gradients of scores are products with it, whose digits are lost below the smallest normal number.
void require_scale(DType compute, const Problem& p) {
  const double scale = p.scale_or_default();
  const bool narrow = compute != DType::f64;
  if (narrow && !std::isfinite(static_cast<float>(scale)))
    throw InvalidProblem(fmt::format("scale = {} is beyond f32: the largest is 3.4e38, f64 takes it", scale));
  const auto least_of = [](auto one) {
    using T = decltype(one);
    return double{std::numeric_limits<T>::min()} / double{std::numeric_limits<T>::epsilon()};
  };
  const double least = narrow ? least_of(1.0F) : least_of(1.0);
  if (follows_forward(p.op) && scale != 0 && std::abs(scale) < least)
    throw InvalidProblem(fmt::format(
        "scale = {}: gradients of so small a scale lose digits in {}; give {} or more, and make q or k smaller{}",
        scale, narrow ? "f32" : "f64", least, narrow ? ", or compute in f64" : ""));
}

}  // namespace

void require_arithmetic(DType compute, const Problem& p, const Tensors& tensors) {
  if (compute == DType::f16) throw Unsupported("compute type f16: arithmetic is f32, f64, or bf16 with sums in f32");
  if (compute == DType::bf16) require_bf16(p, tensors);
  if (p.accumulate || p.op == Operation::merge) require_accumulators(compute, p, tensors);
  require_softcap(compute, p.softcap);
  require_scale(compute, p);
}

}  // namespace redblue
