#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "options/options.hpp"
#include "redblue/language/word_type.hpp"
#include "redblue/planner/fastest.hpp"
#include "report/standard_output.hpp"

/// Fast memory, and what the planner may do and minimises.
namespace redblue::cli {

void MemoryOptions::add_to(const Command& command, bool in_words) {
  command.option("--M", M, "fast memory in words").type_name("WORDS").words();
  command
      .option("--memory", memory,
              in_words
                  ? "fast memory in bytes: 64KiB, 1.5MiB: as many words of --compute-dtype as they hold; plans move "
                    "the fewest words"
                  : "fast memory in bytes: 64KiB, 1.5MiB; inputs take --dtype there, all else --accumulate; a plan "
                    "then moves the fewest bytes, not words")
      .type_name("BYTES");
}

void MemoryOptions::add_to_run(const Command& command) {
  command.option("--M", M, "fast memory in words").type_name("WORDS").words();
  command
      .option("--memory", memory,
              "bytes for all memory of the run, page cache included, beside 48 MiB for the program: inputs and outputs "
              "are read and written where they lie in their files, block by block: 256MiB, 4GiB")
      .type_name("BYTES");
}

Words MemoryOptions::words(DType compute) const {
  const DType word = word_of(compute);
  if (M.has_value() == memory.has_value())
    throw InvalidProblem(M ? fmt::format("--M {} and --memory {}: give one of them", *M, *memory)
                           : "give the size of fast memory, as --M WORDS or as --memory BYTES");
  if (M && *M < 1) throw InvalidProblem(fmt::format("M = {}: fast memory needs at least one word", *M));
  if (M) return *M;
  const Words fit = bytes() / Words(size_of(word));
  if (fit < 1)
    throw InvalidProblem(
        fmt::format("--memory {} holds no word of {} ({} bytes)", *memory, name_of(word), size_of(word)));
  return fit;
}

Words MemoryOptions::bytes() const {
  if (M) throw InvalidProblem(fmt::format("--M {} and --memory {}: give one of them", *M, *memory));
  const Words all = parse_bytes("--memory", *memory);
  constexpr index_t kFew = 1024;
  static bool said = false;  // once, however often it is asked for
  if (all < kFew && not_decimal(*memory).empty() && !std::exchange(said, true))
    note(fmt::format("--memory {0} is {0} bytes, {1} words of f32; {0}KiB is {0} x 1024 bytes", *memory,
                     (all / 4).str()));
  return all;
}

void PlannerOptions::add_to(const Command& command, bool with_width, std::size_t operations) {
  std::string names;
  for (std::size_t i = 0; i < operations; ++i)
    names += fmt::format("{}{}: {}", i == 0 ? "" : "; ", kOperationNames[i],
                         fmt::join(plan::Registry::built_in().names(static_cast<Operation>(i)), " "));
  flags.add(command, "schedule", "; " + names);
  for (const std::string_view name : {"quadratic_workspace", "reserve", "double_buffer"}) flags.add(command, name);
  command.option("--multiple", multiple, "tile sizes must be multiples: q=16,k=16,f=8 (queries, keys, features)")
      .type_name("LIST");
  if (with_width) add_width(command);
  command
      .option("--max-workspace", max_workspace,
              "most memory that a run may take beside inputs and outputs, fast memory included: 64MiB")
      .type_name("BYTES");
  flags.add_others(command, true);
  std::vector<std::string> orders{"auto"};
  orders.insert(orders.end(), kPatternOrderNames.begin(), kPatternOrderNames.end());
  command
      .option(
          "--order", order,
          "under a pattern, in which order queries and keys are taken: the one that moves the fewest words (auto), "
          "natural, rcm (reverse Cuthill-McKee), jaccard (the most alike follow each other) or in-place (natural, and "
          "those that no pair has are not left out, so that a run copies nothing)")
      .one_of(orders);
}

bool PlannerOptions::allows_residues(Operation op) const {
  plan::Options o;
  flags.apply_to(o);
  const auto named = plan::Registry::built_in().find(op, o.schedule);
  return (order == "auto" || order == name_of(PatternOrder::rcm)) && !max_workspace &&
         !(named != nullptr && named->traits.lists_pairs);
}

void PlannerOptions::apply_to(Problem& p) const {
  const auto asked = from_name<PatternOrder>(order);  // nothing: auto
  if (p.dilation > 1) return;                         // by residues
  p.take_order(asked);
}

void PlannerOptions::add_width(const Command& command) {
  command
      .option(
          "--width", width,
          "bytes per word of each array, to minimise bytes: Q=2,K=1,V=1,O=2,lse=4,S=4 (arrays of the "
          "operation; those not named: --dtype). Words of an output that are written to be read again have those of "
          "accumulators. With --memory, inputs have it in fast memory, too, and "
          "accumulators=4, scores=4, statistics=4 set it there for all words of a kind")
      .type_name("LIST");
}

plan::Options PlannerOptions::options(const Tensors& tensors, const RunOptions& run) const {
  plan::Options o;
  flags.apply_to(o);
  for (const auto& [name, value] : parse_assignments("--multiple", multiple, {"q", "k", "f"}))
    (name == "q" ? o.multiple.query : name == "k" ? o.multiple.key : o.multiple.feature) = value;
  o.reorder = order == "auto";
  if (max_workspace) o.cap = memory_cap(parse_bytes("--max-workspace", *max_workspace), tensors, run);
  return o;
}

void ObjectiveOptions::add_to(const Command& command) {
  command
      .option("--objective", objective,
              "what the plan minimises: words (bytes that move, where --memory gives fast memory in bytes), or time as "
              "modelled for this machine (redblue doctor) or --machine. Without --M or --memory, words take a core's "
              "private cache, time twice that, and a run minimises time")
      .type_name("NAME");
  command
      .option("--machine", machine,
              "hardware file of the machine whose time is modelled (default: that of this machine)")
      .type_name("FILE");
}

plan::Plan ObjectiveOptions::plan(const Problem& p, plan::Options options, const MemoryOptions& memory, DType compute,
                                  DType dtype, int threads) const {
  if (!words() && objective != "time")
    throw InvalidProblem(fmt::format("--objective {}: choose from words, time", *objective));
  if (words()) {
    if (machine) throw InvalidProblem(fmt::format("--machine {} is for --objective time", *machine));
    if (memory.memory) {
      if (!plan::has_widths(options)) set_widths(options, p, dtype, word_of(compute), {});
      options.minimise_bytes = true;  // though the words of a run have one width in fast memory
    }
    if (!options.memory)
      options.M = (memory.given() ? memory : MemoryOptions{std::nullopt, assumed_memory()}).words(compute);
    return plan::make_plan(p, options);
  }
  if (options.write_cost != 1)
    throw InvalidProblem(fmt::format("--write-cost {} is for --objective words", options.write_cost));
  if (memory.given()) options.M = memory.words(compute);
  TimeOptions time;
  time.dtype = compute;
  time.tensors = dtype;
  time.threads = threads;
  return fastest(p, options, std::move(time));
}

}  // namespace redblue::cli
