#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "redblue/language/dtype.hpp"
#include "redblue/language/types.hpp"

namespace redblue::file {

inline constexpr std::size_t kMaxHeaderBytes = 100'000'000;  ///< the reference implementation's limit

/// Bits per element of every dtype of the format (safetensors 0.6), or nothing for an unknown one.
constexpr std::optional<index_t> bits_of_safetensors_dtype(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, index_t>, 22> kBits{{
      {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
      {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
      {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
  }};
  for (const auto& [known, bits] : kBits)
    if (known == name) return bits;
  return std::nullopt;
}

constexpr std::string_view safetensors_name_of(DType t) {
  constexpr std::array<std::string_view, 5> kNames{"F64", "F32", "F16", "BF16", "BOOL"};
  return kNames[static_cast<std::size_t>(t)];
}

}  // namespace redblue::file
