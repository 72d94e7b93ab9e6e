#pragma once
#include "redblue/language/dtype.hpp"

namespace redblue {

/// The type of a word of fast memory where arithmetic has the type `compute`. Tiles hold f32 for bf16, because products
/// of bf16 are summed in f32.
constexpr DType word_of(DType compute) { return compute == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace redblue
