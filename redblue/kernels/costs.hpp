#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "redblue/language/layout.hpp"

/// What a kernel costs beside its multiply-adds: models of time and of rounding ask, and know no kernel by its name.
/// A kernel K says what differs from these defaults,
///
///   static constexpr Costs costs{.scores_at = 0};
///
/// and, with the shapes of its arguments,
///
///   constexpr index_t exponentials(Shape...) const;                       // a plain kernel: how many it takes
///   constexpr std::optional<PairByPair> pair_by_pair(Shape...) const;     // pair_by_pair.hpp: if an implementation
///   may go so
namespace redblue::kernel {

/// What a kernel makes of an lse, which is rounded.
enum class LseUse : std::uint8_t {
  none,
  weights,  ///< weights of keys: a factor exp(-lse) where others divide by the sum of a row, or a share exp(lse)
  merges,   ///< argument 0 takes in the lse of argument 1, and is rounded again
};

struct Costs {
  /// An argument that a composite needs as it is laid out for implementations, and whole; else it runs part by part.
  struct Packed {
    std::size_t argument;
    Layout layout;
    bool or_few_rows;  ///< few rows may lie as they like
  };

  std::optional<std::size_t> scores_at{};  ///< the argument that is a tile of scores at its place: what the mask hides
                                           ///< there may be left out
  bool hides = false;                      ///< and is filled in where a row sees a part of a tile
  bool finds_pairs = false;                ///< each multiply-add finds a pair of a pattern first
  LseUse lse = LseUse::none;
  // What its implementations do:
  bool multiplies_bf16 = false;           ///< they multiply bf16 where others multiply f32
  std::span<const std::size_t> rounds{};  ///< arguments whose words they round to bf16 for that, each time anew
  std::optional<Packed> packed{};
  bool keys_in_lanes = false;  ///< columns of scores lie in vector lanes, not rows
};

}  // namespace redblue::kernel
