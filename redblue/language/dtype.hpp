#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace redblue {

/// Element types of slow memory. Arithmetic is fp32 or fp64; bf16 and f16 are storage only. boolean, a byte, is for a
/// bias that is a mask: true is read as 0, false as -inf. int8 is for keys and values: each word is multiplied by a
/// scale (scales.hpp) as it is read.
enum class DType : std::uint8_t { f64, f32, f16, bf16, boolean, int8 };

constexpr std::size_t size_of(DType t) {
  return t == DType::f64 ? 8 : t == DType::f32 ? 4 : t == DType::boolean || t == DType::int8 ? 1 : 2;
}
constexpr std::string_view name_of(DType t) {
  constexpr std::string_view names[] = {"f64", "f32", "f16", "bf16", "bool", "int8"};
  return names[static_cast<std::size_t>(t)];
}
/// A type of numbers by its name: neither bool nor int8, which needs scales.
constexpr std::optional<DType> dtype_from_name(std::string_view name) {
  for (DType t : {DType::f64, DType::f32, DType::f16, DType::bf16})
    if (name == name_of(t)) return t;
  return std::nullopt;
}

template <class T>
inline constexpr DType kDTypeOf = sizeof(T) == 8 ? DType::f64 : DType::f32;

}  // namespace redblue
