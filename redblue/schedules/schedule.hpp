#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "redblue/language/data_machine.hpp"
#include "redblue/problem/operation.hpp"
#include "redblue/problem/problem.hpp"
#include "redblue/problem/sequences.hpp"
#include "redblue/schedules/parts/limits.hpp"

namespace redblue::machine {
class Any;
}

namespace redblue::plan {

/// Tile sizes by name, in the order of Schedule::tile_sizes. Sizes that are missing have their defaults.
using Tiling = std::vector<schedule::TileSize>;
/// "Br=64 Bc=16"; text_of also says whether some sequences have tiles of their own.
std::string sizes_text(const Tiling& tiling);
std::string text_of(const Tiling& tiling);

/// What a schedule runs on: `count` instances (heads, or groups of heads that share K and V) of the same sizes.
struct Instances {
  Sizes sizes;
  double scale = 1;
  index_t count = 1;
};

/// A schedule on some instances with its tiles: what all instances share is made once, for any number of runs. Any
/// number of threads may run it at once.
struct Prepared {
  Prepared() = default;
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  virtual ~Prepared() = default;
  /// Runs all instances, as an outermost loop of independent rounds.
  virtual void run(machine::Any& m) const = 0;
};

/// A schedule as a value: all that is known of it, and how to run it on any machine. describe<S>() of
/// redblue/schedules/describe.hpp makes one of a schedule text S. Everything that takes a Tiling throws InvalidProblem
/// where a name in it is none of this schedule's tile sizes.
struct Schedule {
  std::string_view name;   ///< as users type it
  std::string_view label;  ///< what papers or the theory notes call it, if anything
  std::string_view idea;   ///< what it does, in a few words
  Operation operation;
  schedule::Traits traits;
  std::vector<schedule::TileSizeRange> tile_sizes;
  std::vector<SlowArray> workspace_arrays;  ///< what it keeps in slow memory besides inputs and outputs

  /// Why it cannot solve a problem of these sizes whatever its tiling, in words that follow its name; nothing if it
  /// can.
  std::optional<std::string_view> (*unsupported)(const Sizes&);
  /// The bound for some schedules only that binds this one at these sizes; empty: none.
  std::string_view (*restricted_bound)(const Sizes&);
  /// What a user should know of its numbers with this tiling; empty: nothing.
  std::string_view (*caveat)(const Sizes&, const Tiling&);
  /// May it run with this tiling? Sizes beyond a dimension count as the dimension.
  bool (*allows)(const Sizes&, const Tiling&);
  /// The smallest tiles that keep to the multiples.
  Tiling (*smallest)(const Sizes&, const schedule::Multiples&);
  /// The tiling that costs least under these limits; nothing if none fits.
  std::optional<Tiling> (*choose)(const Sizes&, const schedule::Limits&);
  // Exact, for one instance, in words.
  Words (*footprint)(const Sizes&, const Tiling&);  ///< most resident at a time
  Words (*prefetch)(const Sizes&, const Tiling&);   ///< what second buffers add to it
  Io (*io)(const Sizes&, const Tiling&);
  Words (*macs)(const Sizes&, const Tiling&);  ///< multiply-adds
  /// The index words beside io and footprint, of one instance; where batches differ, of one key-value head of all
  /// batches, as io is.
  IndexWords (*index)(const Sizes&, const Tiling&);
  std::vector<Workspace> (*workspace)(const Sizes&, const Tiling&);
  std::unique_ptr<const Prepared> (*prepare)(const Instances&, const Tiling&);
  /// The costs of a run that decided this (language/machine.hpp); those above are then the most that any data cost: io
  /// and macs where every decision is the worst, footprint of any. Null: it asks for no decision.
  schedule::Costs (*decided)(const Sizes&, const Tiling&, const Decisions&) = nullptr;
  /// At least what io says, whatever the tiling: a planner need not search a schedule that cannot win. Null: not said.
  Io (*least_io)(const Sizes&) = nullptr;

  /// One run of what prepare() makes.
  void run(machine::Any& m, const Instances& x, const Tiling& t) const { prepare(x, t)->run(m); }
  /// decided(), or what it costs whatever the data.
  schedule::Costs costs(const Sizes& x, const Tiling& t, const Decisions& decisions) const {
    return decided != nullptr ? decided(x, t, decisions) : schedule::Costs{io(x, t), footprint(x, t), macs(x, t)};
  }

  /// What the tile size of this name may be set to. Throws InvalidProblem where there is none.
  const schedule::TileSizeRange& tile_size(std::string_view tile_size_name) const;
  bool is_called(std::string_view wanted) const { return wanted == name || (!label.empty() && wanted == label); }
  /// Does it keep a matrix with an entry for every query and key in slow memory?
  bool has_quadratic_workspace() const;
  Words workspace_words(const Sizes& x, const Tiling& t) const;
  /// Why it cannot solve this problem, for any reason; nothing if it can.
  std::optional<std::string> obstacle(const Problem& problem, const Sizes& x) const;
};

/// The arrays that an operation reads, those that it writes, and all that its schedules may touch: workspace, too.
std::span<const SlowArray> inputs_of(Operation op);
std::span<const SlowArray> outputs_of(Operation op);
std::vector<SlowArray> arrays_of(Operation op);
/// The matrix that is called `array`, of one instance; no words if the operation has none.
SlowMatrix matrix_of(Operation op, const Sizes& sizes, SlowArray array);

/// Schedules by operation, in order: of two that cost the same the planner takes the first.
class Registry {
 public:
  /// redblue's own.
  static const Registry& built_in();

  /// Throws InvalidProblem where it has no name, or a schedule of this operation has the same name or label.
  void add(Schedule schedule);
  std::span<const std::shared_ptr<const Schedule>> of(Operation op) const {
    return lists_[static_cast<std::size_t>(op)];
  }
  /// By name or label; null if there is none.
  std::shared_ptr<const Schedule> find(Operation op, std::string_view name) const;
  /// Names of all schedules of an operation.
  std::vector<std::string_view> names(Operation op) const;

 private:
  std::array<std::vector<std::shared_ptr<const Schedule>>, kOperationNames.size()> lists_;
};

}  // namespace redblue::plan
