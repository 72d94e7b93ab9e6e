#pragma once
#include "redblue/core/dtype.hpp"

namespace redblue {

/// The type of a word of fast memory where arithmetic is of type `compute`: what bf16 multiplies is summed, and held in
/// tiles, in f32.
constexpr DType word_of(DType compute) { return compute == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace redblue
