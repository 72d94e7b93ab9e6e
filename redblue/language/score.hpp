#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace redblue {

/// What turns scores into weights: P = softmax(S) row by row, or a function of each score alone.
enum class Score : std::uint8_t { softmax, sigmoid, relu, identity };
inline constexpr std::array<std::string_view, 4> kScoreNames = {"softmax", "sigmoid", "relu", "identity"};

constexpr std::string_view name_of(Score s) { return kScoreNames[static_cast<std::size_t>(s)]; }
constexpr std::optional<Score> score_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kScoreNames.size(); ++i)
    if (kScoreNames[i] == name) return static_cast<Score>(i);
  return std::nullopt;
}

/// Does it take the exponential of each score?
constexpr bool exponentiates(Score s) { return s == Score::softmax || s == Score::sigmoid; }

}  // namespace redblue
