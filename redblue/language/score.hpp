#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "redblue/language/names.hpp"

namespace redblue {

/// What turns scores into weights: P = softmax(S) row by row, or a function of each score alone.
enum class Score : std::uint8_t { softmax, sigmoid, relu, identity };
inline constexpr std::array<std::string_view, 4> kScoreNames = {"softmax", "sigmoid", "relu", "identity"};

constexpr const auto& names_of(Score /*any*/) { return kScoreNames; }

/// Does it take the exponential of each score?
constexpr bool exponentiates(Score s) { return s == Score::softmax || s == Score::sigmoid; }

}  // namespace redblue
