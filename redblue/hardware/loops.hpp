#pragma once
#include <cstdint>

#include "redblue/hardware/isa.hpp"
#include "redblue/language/dtype.hpp"

namespace redblue::hardware {

/// The loops that measure a core, for one instruction set and element type. Their results depend on everything that
/// they compute, so that no compiler leaves anything out.
struct Loops {
  Isa isa;
  DType dtype;
  int macs_per_vector;
  int chains;  ///< vector multiply-adds per step, independent of each other
  double (*multiply_add)(std::int64_t steps);
  /// y = exp2(0.125 x - 1), and its sum, `passes` times; n elements, a multiple of kExpMultiple, 64-byte aligned.
  /// Null: not measured.
  double (*exp2)(const void* x, void* y, std::int64_t n, std::int64_t passes);
  /// Reads bytes, a multiple of kReadMultiple, 64-byte aligned, `passes` times. Null: not measured.
  double (*read)(const void* from, std::int64_t bytes, std::int64_t passes);
};
inline constexpr std::int64_t kExpMultiple = 64, kReadMultiple = 1024;

extern const Loops kPortableF32, kPortableF64;

}  // namespace redblue::hardware
