#pragma once
#include <optional>
#include <string>
#include <vector>

#include "redblue/bounds/bound.hpp"
#include "redblue/ranks/cost.hpp"
#include "redblue/ranks/work.hpp"

/// The choice of a layout for a problem and a number of ranks.
namespace redblue::ranks {

struct Wanted {
  int ranks = 1;
  WireWidths widths{};
  std::optional<Network> network{};
  bool least_time = false;  ///< of the network; else the fewest words of a rank
  // What is given is not chosen.
  std::optional<Layout> grid{};  ///< its head_groups, grid_rows and grid_cols
  std::optional<Transfer> transfer{};
  std::optional<Ownership> ownership{};
  index_t block = 0;         ///< for Ownership::block_cyclic
  index_t reproducible = 0;  ///< Layout::reproducible: a layout that can do that is chosen; others are for comparison
  bool keeps_heads = false;  ///< Layout::keeps_heads, of all layouts with head groups
  Words M = 0;  ///< words of fast memory of a rank, for LayoutRow::local; they choose no layout. 0: not given
};

struct LayoutRow {
  std::string name;  ///< "ring", "all-gather", "Ulysses", ...
  LayoutCost cost;
  bound::Bound bound;           ///< on cost.words, of any schedule on as many ranks with as many rows at home
  std::optional<double> ratio;  ///< words over bound, where that is above 0
  /// Where M is given, for kMostWithLocal ranks at most.
  std::optional<LocalWork> local{};
};
inline constexpr int kMostWithLocal = 4096;

/// A layout that people use, which does not go with the problem and the number of ranks.
struct LayoutRefusal {
  std::string name, why;
};

struct LayoutPlan {
  std::vector<LayoutRow> rows;  ///< the chosen one, then others for comparison
  std::vector<LayoutRefusal> refused;
  std::string reason;
};

/// The layout of the fewest words of a rank, or of the least modelled time, beside ring, all-gather, Ulysses, the best
/// grid and the best grids of groups of heads. For words, layouts whose busiest rank has more than 1.1 times the pairs
/// that it need have are left out: docs/ranks.md. Throws InvalidProblem or Unsupported where the problem does not go
/// over ranks, or no layout is as wanted.
LayoutPlan plan_layout(const Problem& problem, const Wanted& wanted);

/// What people call a layout: "ring", "all-gather", "Ulysses", "2-D", "nested", ...
std::string common_name(const Layout& layout);
/// "4 x 16 x 1": head groups, rows and columns of the grid.
std::string shape_text(const Layout& layout);

}  // namespace redblue::ranks
