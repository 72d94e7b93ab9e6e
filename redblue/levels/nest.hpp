#pragma once
#include <optional>
#include <string>
#include <vector>

#include "redblue/language/dtype.hpp"
#include "redblue/levels/sizes.hpp"
#include "redblue/planner/planner.hpp"

/// Plans of plans. Memory has levels, each smaller and faster than the one above it: a disk, main memory, caches. The
/// schedule of a plan moves words between the two outermost. Each call of a kernel is carried out by the level below on
/// tiles of the level above, and so on: carry_out.hpp.
namespace redblue::levels {

/// A level of memory. The outermost holds everything, and its size is of no account.
struct Level {
  std::string name;
  Words bytes = 0;
  double bandwidth = 0;  ///< bytes per second that come from the level above; 0: not known
};

struct NestOptions {
  std::vector<Level> levels;   ///< two or more, the outermost first
  DType word = DType::f32;     ///< of fast memories: the type of the arithmetic
  plan::Options outer{};       ///< of the outermost plan; M is found
  double macs_per_second = 0;  ///< of all cores together; 0: not known
  Grain grain{};
  /// Choose what takes least time, over all levels together; else the largest ratio of what moves at a border to its
  /// bound is as small as it can be.
  bool by_time = false;
};

/// What moves between a level and the one below.
struct Border {
  std::string above, below;
  Words M{};     ///< words of the level below
  Words held{};  ///< the most that it holds at a time
  Io io{};
  Words bytes{};
  /// It holds for every schedule whose memories, from the level below inwards, hold as many words together as these.
  bound::Bound bound{};
  std::optional<double> ratio{};
  std::optional<double> seconds{};  ///< at the bandwidth of the level below
};

struct Nest {
  plan::Plan outer;  ///< the outermost plan
  std::vector<Level> levels;
  std::vector<Inner> inner{};
  std::vector<Border> borders{};  ///< the outermost first
  std::vector<Calls> calls{};     ///< of the inner levels
  std::optional<double> compute_seconds{};
  /// Multiply-adds and what moves at the inner borders, one after the other, for cores do both; or what moves at the
  /// outermost border, beside them, if that takes longer; null where a rate is not known.
  std::optional<double> seconds{};
};

/// The nest of the least ratios, or of least time. Counts are exact, by a walk through the outermost
/// schedule. Throws InvalidProblem for levels that make no sense, Unsupported where a kernel does not say how it
/// divides, and what make_plan throws.
Nest make_nest(const Problem& problem, const NestOptions& options);

}  // namespace redblue::levels
