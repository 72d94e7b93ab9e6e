#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "command_line.hpp"
#include "options/flags.hpp"
#include "redblue/planner/widths.hpp"
#include "redblue/runtime/run.hpp"

namespace redblue {
struct TimeOptions;
}

namespace redblue::cli {

/// Fast memory: --M words or --memory bytes.
struct MemoryOptions {
  std::optional<index_t> M;
  std::optional<std::string> memory;

  /// `in_words`: are bytes a number of words, of which plans move the fewest?
  void add_to(const Command& command, bool in_words = false);
  /// For a run, where bytes are those of all its memory.
  void add_to_run(const Command& command);
  bool given() const { return M || memory; }
  /// Words of arithmetic in `compute`. Throws InvalidProblem unless exactly one of the two options has a valid value.
  Words words(DType compute) const;
  Words bytes() const;
};

/// What a word takes in fast memory, where --memory gives it in bytes.
struct ResidenceOptions {
  std::optional<std::string> accumulate;
  std::optional<std::string> pad;  ///< "rows=64,after=4"

  void add_to(const Command& command);
  /// Throws InvalidProblem if an option is given: fast memory is not in bytes.
  void require_none() const;
  static constexpr index_t kMostPadding = 4096;  ///< bytes
  /// For arrays of `dtype` and arithmetic in `compute`; `widths` are those of --width.
  Residence of(Operation op, DType dtype, DType compute, const Widths& widths) const;
};

/// What the planner may do, and what it must keep to.
struct PlannerOptions {
  PlannerFlags flags;
  std::string multiple;  ///< "q=16,k=16,f=8"
  std::string width;     ///< "Q=2,K=1,V=1"
  std::string order = "auto";
  std::optional<std::string> max_workspace;

  /// The help names the first `operations` operations.
  void add_to(const Command& command, bool with_width = true, std::size_t operations = kOperationNames.size());
  void add_width(const Command& command);
  /// Without M. `tensors` and `run`: what --max-workspace is about.
  plan::Options options(const Tensors& tensors, const RunOptions& run) const;
  /// May a dilated window be taken by residues? Queries and keys are copied then, and what is planned is no pattern.
  bool allows_residues(Operation op) const;
  /// Sets the order of queries and keys under a pattern. Throws InvalidProblem where one is asked for that cannot be.
  void apply_to(Problem& p) const;
};

/// The bytes of this machine's private cache, from that file or as the system reports them; said on standard error.
std::string assumed_memory();

/// What a plan minimises: words, or modelled time on a machine.
struct ObjectiveOptions {
  std::optional<std::string> objective;  ///< not given: words, but for a run or a bench without fast memory
  std::optional<std::string> machine;
  bool measured = false;  ///< choose_for_run has measured this machine

  bool words() const { return objective.value_or("words") == "words"; }
  /// For a run or a bench without --objective and without fast memory: the time on this machine, which is measured now
  /// if redblue doctor has not done it.
  void choose_for_run(const MemoryOptions& memory);

  void add_to(const Command& command);
  /// The plan, for arithmetic in `compute` on tensors of `dtype`. `memory` says how much fast memory there is; without
  /// it words take this machine's private cache, and time what fits the machine, which is measured if doctor has not
  /// done it. Throws InvalidProblem for an unknown objective or an option of the other; IoError if the hardware file is
  /// bad.
  plan::Plan plan(const Problem& p, plan::Options options, const MemoryOptions& memory, DType compute, DType dtype,
                  int threads) const;

 private:
  /// The plan of least time for this machine, or for that of the file; `time` lacks the machine.
  plan::Plan fastest(const Problem& p, const plan::Options& options, TimeOptions time) const;
};

/// The computation, apart from sizes.
struct OperationOptions {
  std::optional<std::string> approximate;  ///< "2:1.0", "performer:256"

  /// The help names the first `operations` operations.
  void add_to(const Command& command, ProblemFlags& flags, std::size_t operations = kOperationNames.size());
  /// Sets what the flags say, and the approximation. Throws Unsupported, with the names that exist.
  void apply_to(Problem& p, const ProblemFlags& flags) const;
};

/// Which keys a query sees where no interval says it (patterns.cpp).
struct PatternOptions {
  std::optional<index_t> globals, dilation, strided, pattern_seed;
  std::optional<std::string> fixed, big_bird, mask, blocks, block, csr;

  void add_to(const Command& command);
  /// Does the pattern depend on where queries stand among the keys?
  bool stands_at_positions() const { return strided || fixed || big_bird; }
  /// Applies them to a problem whose sizes are known. A window that becomes a part of the pattern is taken out of the
  /// problem. Throws InvalidProblem or IoError. `window`: was one given, with edges or without? `by_residues`: may a
  /// dilated window be taken by residues?
  void apply_to(Problem& p, bool window, bool by_residues) const;
};

/// Packed and padded sequences.
struct SequenceOptions {
  std::optional<std::string> seqlens, seqlens_k, seqused_q, seqused_k;

  void add_to(const Command& command);
  void apply_to(Problem& p) const;
};

/// Which keys a query sees.
struct MaskOptions {
  PatternOptions pattern;
  std::optional<std::string> causal_offset, window;
  SequenceOptions sequences;

  void add_to(const Command& command, ProblemFlags& flags);
  /// Sets the mask of a problem, and the offset that ALiBi counts from, with a mask or without; it has the flags.
  /// Throws InvalidProblem where the options contradict each other, or name a file that cannot be read.
  void apply_to(Problem& p, const ProblemFlags& flags) const;
  /// Applies the patterns, once the sizes of the problem are known.
  void apply_patterns(Problem& p, const PlannerOptions& planner) const {
    pattern.apply_to(p, window.has_value(), planner.allows_residues(p.op));
  }
};

/// The flags of what the problem does to scores and weights beside scaling and masking them.
void add_modifiers(const Command& command, ProblemFlags& flags);

/// A problem described by sizes: plan, bound, count, trace.
struct ProblemOptions {
  OperationOptions operation;
  std::optional<index_t> n, n_q, n_k, d_v;
  index_t d = 0;
  ProblemFlags flags;
  MaskOptions mask;
  std::optional<std::string> bias;  ///< "1,8,512,512"
  std::string dtype = "f32";
  std::optional<std::string> compute_dtype;
  MemoryOptions memory;
  ResidenceOptions residence;
  PlannerOptions planner;
  ObjectiveOptions objective;
  std::optional<index_t> threads;
  bool json = false;

  void add_to(const Command& command, bool with_planner = true);
  /// Adds the options without n, n_q, n_k, d, d_v and threads. The help names the first `operations` operations.
  void add_without_sizes(const Command& command, bool with_planner = true,
                         std::size_t operations = kOperationNames.size());
  Problem problem() const;
  /// The type of arithmetic.
  DType compute() const;
  /// Fast memory alone, in words or in bytes.
  plan::Options fast_memory(const Problem& p) const;
  /// --width by name: arrays, and in bytes the kinds of words that are resident.
  Widths widths(Operation op, bool in_bytes) const;
  plan::Plan plan() const;
  /// The plan for a run with these options; its time is modelled for `cores` cores. `in_bytes`: words are as wide in
  /// fast memory as `residence` says, not all alike. Throws what require_arithmetic does.
  plan::Plan plan(const RunOptions& run, int cores, bool in_bytes = false) const;
};

/// --threads, for RunOptions: 0 if it is not given. Throws InvalidProblem if there are fewer threads.
int threads_of(const std::optional<index_t>& asked);

/// --compute-dtype, the same for every command: f64 if an input is f64, else f32, unless something was said.
void add_compute_dtype(const Command& command, std::optional<std::string>& to);
DType compute_of(const std::optional<std::string>& asked, bool any_f64);

/// Throws Unsupported with a list of the types.
DType parse_dtype(const std::string& option, const std::string& name);
/// "1.5MiB", "64KiB", "4096" in bytes. Throws InvalidProblem.
Words parse_bytes(const std::string& option, const std::string& text);
/// "512,2048", at least one. Throws InvalidProblem.
std::vector<index_t> parse_list(const std::string& option, const std::string& text);
/// A list of as many numbers as there are names, which the message gives.
std::vector<index_t> parse_list(const std::string& option, const std::string& text, std::string_view names);
/// "a=1,b=2" with these names allowed. Throws InvalidProblem.
std::map<std::string, index_t> parse_assignments(const std::string& option, const std::string& text,
                                                 const std::vector<std::string>& names);

}  // namespace redblue::cli
