#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "redblue/bounds/bound.hpp"
#include "redblue/language/cost.hpp"
#include "redblue/planner/time.hpp"
#include "redblue/problem/problem.hpp"
#include "redblue/schedules/schedule.hpp"

namespace redblue::plan {

/// Row::cost is in thousandths, the resolution of Options::write_cost.
inline constexpr int kCostUnit = 1000;

struct Plan;

/// The most bytes that a run may take beside inputs and outputs.
struct Cap {
  Words most;
  /// The bytes of a run of the plan's chosen row, plus those of its forward plan; a plan may lack either. They depend
  /// on the tensors: redblue::memory_cap makes this function.
  std::function<Words(const Plan&)> bytes_of;
};

/// Fast memory as a number of bytes, for words of different widths.
struct ByteMemory {
  Words bytes;
  Residence fast{};  ///< bytes of a resident word of each array, and how rows are padded
};
/// Resident words of the inputs in `operand`, all others in `accumulator`: outputs, scores, statistics and what is
/// between. O counts among the outputs where a gradient reads it, too.
Residence residence_of(Operation op, DType operand, DType accumulator);

struct Options {
  Words M;                             ///< words of fast memory
  std::optional<ByteMemory> memory{};  ///< in place of M, which then is the most words that it can hold
  bool reorder = true;                 ///< under patterns: may Problem::order be another than natural?
  bool quadratic_workspace = true;     ///< may a schedule keep n_q x n_k scores in slow memory?
  Words reserve = 0;                   ///< words of M to leave free (2: strict Hong-Kung play)
  bool double_buffer = false;          ///< leave room for second buffers of what the innermost loop brings in
  schedule::Multiples multiple{};      ///< tile sizes must be multiples of these
  /// Bytes per word of each array that the operation has, in slow memory; all 0: not given.
  std::array<index_t, kSlowArrays> width{};
  /// Bytes per word of each output while it is unfinished, written to be read again; at least as many as in `width`.
  std::array<index_t, kSlowArrays> unfinished{};
  bool minimise_bytes = true;  ///< where widths are given; else words
  /// Forward, with K and V of int8 in slow memory: how many keys of a head share an fp32 scale (n_k or more: all of
  /// them); 0: they are as wide as other inputs. set_widths heeds it.
  index_t keys_per_scale = 0;
  /// Scales of a head, and words of K and V for which they are read: set_widths finds them.
  index_t scales_of_head = 0;
  std::array<index_t, kSlowArrays> words_of_scales{};
  double write_cost = 1;   ///< what a write costs, in reads (resolution 1/1000)
  std::string schedule{};  ///< plan this one only, if not empty
  /// The tiling of `schedule` to plan with, in place of the one that costs least. One that takes more than M is
  /// planned, too, as one that does not fit.
  std::optional<Tiling> tiling{};
  std::optional<Cap> cap{};
  /// Where schedules come from; must live while plans are made. Rows keep the schedules that they need.
  const Registry* registry = &Registry::built_in();
};

/// One line of the ranked table. All counts are totals over batch and heads.
struct Row {
  std::string_view schedule;  ///< its name
  std::shared_ptr<const Schedule> algorithm;
  Tiling tiling;
  bool fits = true;  ///< false: a printed algorithm that needs more than M; ranked, never chosen unless asked for
  Io io;
  Words footprint;  ///< peak resident words, where words are all of one width
  Words prefetch;   ///< words of second buffers, if double buffering was asked for
  std::optional<Words> footprint_bytes{}, prefetch_bytes{};  ///< the same in bytes, where Options::memory was given
  IndexWords index{};  ///< of a pattern that is given as an index; not in io, footprint or cost
  Words workspace;     ///< extra words of slow memory, per instance in flight; where bytes are minimised, with those
                       ///< of outputs that are too narrow for their unfinished words
  Words flops;         ///< 2 x multiply-adds of all products
  Words cost;          ///< what was minimised: words, or bytes and weighted writes as the options say (in 1/kCostUnit)
  std::optional<Words> bytes;  ///< moved, when widths were given
  /// I/O, with that of a forward plan before it, over the best proved bound; both in bytes where these are minimised.
  std::optional<double> ratio;
  double weight_error = 0;          ///< proved: every weight is off by at most this share of itself (0: nothing is)
  double work = 1;                  ///< flops over those of the ranked row with the fewest
  std::optional<model::Time> time;  ///< modelled, where time was asked for (redblue/planner/fastest.hpp)
};

/// The schedule and its tiling: "flash Br=64 Bc=16".
std::string text_of(const Row& row);

/// A schedule that is not in the table, and why.
struct Refusal {
  std::string_view schedule;
  std::string why;
  std::optional<Words> smallest_M;      ///< words that would do
  std::optional<Words> smallest_cap{};  ///< bytes that would do, at this M
};

struct Plan {
  Problem problem;
  Options options;
  std::shared_ptr<const Plan> forward;  ///< runs first, where O and lse are not given
  std::vector<bound::Bound> bounds;
  bound::Bound bound;  ///< the largest proved one
  /// The chosen one first, then the others, cheapest first; last those that are only for comparison: unstable or
  /// printed algorithms, and those that do not read the O and lse that are given, that were not asked for.
  std::vector<Row> rows;
  std::vector<Refusal> refused;
  std::size_t chosen = 0;
  std::string reason;  ///< one sentence
  /// Under a pattern: the cheapest schedule if all pairs were formed, and those that the pattern hides then masked;
  /// none where no such schedule fits, or one was asked for by name.
  std::optional<Row> dense{};

  const Row& row() const { return rows[chosen]; }
  /// Only what was asked for by name may be unstable, or too large for M, or ignore the O and lse that are given.
  bool may_choose(const Row& r) const {
    return (r.fits && may_choose(r.algorithm->traits)) || !options.schedule.empty();
  }
  bool may_choose(const schedule::Traits& traits) const {
    return (traits.stable && (!traits.own_softmax || problem.forward_first())) || !options.schedule.empty();
  }
  /// Every head, or group of heads, that the row is for.
  Instances instances() const { return {problem.sizes(), problem.scale_or_default(), problem.instances()}; }
  /// The instances for counting: their words take what Options::memory says.
  Instances counted() const { return {sizes(), problem.scale_or_default(), problem.instances()}; }
  /// The sizes of the problem; a word takes what Options::memory says.
  Sizes sizes() const;
  // The chosen row with what runs before it.
  Io io() const { return forward ? forward->io() + row().io : row().io; }
  Words footprint() const { return forward ? std::max(forward->footprint(), row().footprint) : row().footprint; }
  /// In bytes, where Options::memory was given.
  std::optional<Words> footprint_bytes() const {
    return forward ? std::max(forward->footprint_bytes(), row().footprint_bytes) : row().footprint_bytes;
  }
  IndexWords index() const { return forward ? forward->index().then(row().index) : row().index; }
  Words flops() const { return forward ? forward->flops() + row().flops : row().flops; }
};

/// The sizes of the problem; a word takes what Options::memory says.
Sizes sizes_of(const Problem& problem, const Options& options);

/// The problem as the bounds see it, under the fast memory of these options. Throws InvalidProblem for one that makes
/// no sense.
bound::AttentionProblem bound_problem(const Problem& problem, const Options& options);

/// Ranks every schedule with its best tiling under M. Throws InvalidProblem for sizes or options that make no sense,
/// CapacityError with the smallest M of each schedule when none fits, and MemoryError with the smallest cap when none
/// keeps it.
Plan make_plan(const Problem& problem, const Options& options);

// ---- For planners that rank by another measure (redblue/planner/fastest.hpp) ----

/// The rows alone of schedules that fit, cheapest first; none where no schedule may be chosen. `x` is
/// sizes_of(problem, options), and the problem and the options are valid. Queries and keys stay in their order. Throws
/// InvalidProblem for a schedule that does not exist. `known`: rows that such calls made for this problem, with other M
/// and multiples; of the same tiles they are not made again.
std::vector<Row> rows_that_fit(const Problem& problem, const Options& options, const Sizes& x,
                               std::span<const Row> known = {});
/// Makes a plan for a problem under some options.
using Maker = std::function<Plan(const Problem&, const Options&)>;
/// The plan, made by `make`, for the O and lse that a gradient starts from where they are not given. Throws what `make`
/// throws, and says that it is about the forward pass.
std::shared_ptr<const Plan> forward_before(const Problem& problem, Options options, const Maker& make);
/// Why a run of this row would take more than the cap of the plan; nothing if it keeps the cap or there is none.
std::optional<Refusal> beyond_cap(const Plan& plan, const Row& row);
/// Throws CapacityError, MemoryError or Unsupported from what the plan refused, with the least M or cap that would do.
[[noreturn]] void throw_nothing_fits(const Plan& plan);
/// Is a cost more than a number of words? cost_of is what words cost, in 1/kCostUnit.
bool is_priced(const Options& options);
Words cost_of(const Io& io, const Options& options, Operation op);

/// For the reason of a plan: of queries and keys that are taken in another order though nobody chose it, and of
/// patterns for which no other order was looked for.
std::string note_of_order(const Problem& problem);
inline constexpr std::string_view kNoOtherOrder =
    "; no other order of queries and keys was looked for, as the pattern has very many runs (a dilated window that is "
    "given as such needs none: docs/masks.md)";
inline constexpr std::string_view kOnlyInPlace =
    "; queries and keys stay in place: the copies of other orders take more memory than may be";
/// Puts the rows, of which `first` is the chosen one, in the order of Plan::rows.
void order_rows(Plan& plan, std::vector<Row>::iterator first);
/// Fills ratio and work of every row: they compare with the bound and with the other rows.
void compare_rows(Plan& plan);

}  // namespace redblue::plan
