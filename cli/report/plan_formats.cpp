#include "report/plan_formats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "redblue/planner/widths.hpp"

namespace redblue::cli {

namespace {

/// "S.b1" as "S_B1".
std::string macro_name(std::string_view tile_size) {
  std::string name;
  for (const char c : tile_size)
    name += std::isalnum(static_cast<unsigned char>(c)) != 0
                ? static_cast<char>(std::toupper(static_cast<unsigned char>(c)))
                : '_';
  return name;
}

std::string index_text(const plan::Row& r, std::string_view between) {
  return fmt::format("{}{}{}", r.index.reads.str(), between, r.index.resident.str());
}

std::string ratio_text(const plan::Row& r) { return r.ratio ? fmt::format("{:.4f}", *r.ratio) : ""; }

}  // namespace

bool has_index_words(const plan::Plan& plan) {
  return std::ranges::any_of(plan.rows, [](const plan::Row& r) { return r.index.reads > 0; });
}

std::string theorem_of(const bound::Bound& bound) {
  const bool part_of_pa = bound.algorithms.starts_with("PA,");  // the classes are named in bounds/rounding.hpp
  return fmt::format("theorem {}{}", bound.name, part_of_pa ? fmt::format("; class: {}", bound.algorithms) : "");
}

/// define(name, value) for what says which keys a query sees.
template <class Define>
void define_mask(const Problem& p, const Define& define) {
  const Sizes x = p.sizes();
  const Mask& mask = x.mask;
  if (p.several()) define("SEQUENCES", p.cu_seqlens_q.empty() ? p.batch : std::ssize(p.cu_seqlens_q) - 1);
  if (x.sequences == nullptr) {  // one interval for each query
    const bool left = mask.lo != -Mask::kFar, right = mask.hi != Mask::kFar;
    define("CAUSAL", p.causal && right ? 1 : 0);
    if (p.causal && right) define("CAUSAL_OFFSET", mask.hi - 1);
    if (left || right)
      fmt::print("/* queries at position i (row / GROUP) see the keys j with {}j{} */\n", left ? "i + MASK_LO <= " : "",
                 !right            ? ""
                 : mask.prefix > 0 ? " < max(i + MASK_HI, MASK_PREFIX)"
                                   : " < i + MASK_HI");
    if (left) define("MASK_LO", mask.lo);
    if (right) define("MASK_HI", mask.hi);
    if (mask.prefix > 0) define("MASK_PREFIX", mask.prefix);
    return;
  }
  if (!p.patterns.empty()) {
    fmt::print("/* a query sees the keys that its pattern has{} */\n",
               p.masked() ? ", without those that the mask below hides" : "; the pattern is not written here");
    define("PATTERNS", std::ssize(p.patterns));
  }
  define("CAUSAL", p.causal ? 1 : 0);
  if (!p.masked()) return;
  fmt::print(
      "/* {}query i stands at key i + {}; CAUSAL 1: it sees no key behind that; WINDOW_LEFT, WINDOW_RIGHT: the "
      "most keys that it sees on either side{} */\n",
      p.several() ? "in each sequence " : "",
      p.causal_offset ? "CAUSAL_OFFSET"
      : p.several()   ? "its keys - its queries"
                      : "N_K - N_Q",
      p.dilation > 1 ? ", in steps of DILATION keys" : "");
  if (p.causal_offset) define("CAUSAL_OFFSET", *p.causal_offset);
  if (p.window_left) define("WINDOW_LEFT", *p.window_left);
  if (p.window_right) define("WINDOW_RIGHT", *p.window_right);
  if (p.prefix > 0) define("PREFIX", p.prefix);
  if (p.dilation > 1) define("DILATION", p.dilation);
}

/// define(name, value) for the words that a kernel keeps wider than their output until their last visit.
template <class Define>
void define_unfinished(const plan::Plan& plan, const Define& define) {
  for (const SlowArray a : plan::outputs_of(plan.problem.op)) {
    const index_t width = plan.options.width[index_of(a)];
    const index_t unfinished = plan::unfinished_width(plan.options, plan.problem.op, a);
    if (unfinished == width || plan.row().io.reads[index_of(a)] == 0) continue;
    fmt::print(
        "/* {0} is read again before it is finished: all visits but the last write keep it in workspace, in "
        "{1} bytes a word; the last one writes {2} */\n",
        name_of(a), unfinished, width);
    define(macro_name(name_of(a)) + "_BYTES", width);
    define(macro_name(name_of(a)) + "_UNFINISHED_BYTES", unfinished);
  }
}

void print_c_header(const plan::Plan& plan) {
  if (plan.forward) {  // runs first, for o and lse
    print_c_header(*plan.forward);
    fmt::print("\n");
  }
  const Problem& p = plan.problem;
  const plan::Options& o = plan.options;
  const plan::Row& r = plan.row();
  const std::string prefix = "REDBLUE_" + macro_name(name_of(p.op));
  fmt::print("/* redblue plan, {} on one head (or group of heads that share K and V).\n   {} */\n", name_of(p.op),
             plan.reason);
  fmt::print("#ifndef {0}_H\n#define {0}_H\n", prefix);
  const auto define = [&](std::string_view name, const auto& value) {
    fmt::print("#define {}_{} {}\n", prefix, name, value);
  };
  const auto count = [&](std::string_view name, const Words& words) { define(name, words.str() + "LL"); };
  define("SCHEDULE", fmt::format("\"{}\"", r.schedule));
  for (const auto& [name, value] : {std::pair("N_Q", p.sizes().n_q), std::pair("N_K", p.n_k), std::pair("D", p.d),
                                    std::pair("D_V", p.d_v), std::pair("GROUP", p.group())})
    define(name, value);
  define_mask(p, define);
  if (!schedule::own_tilings(r.tiling).empty())
    fmt::print("/* Tiles of the largest sequence: some others have their own, which plan --json lists. */\n");
  for (const schedule::TileSize& k : r.tiling) define(macro_name(k.name), k.value);
  if (o.memory)
    count("MEMORY_BYTES", o.memory->bytes);
  else
    count("MEMORY_WORDS", o.M);
  count("FOOTPRINT_WORDS", r.footprint);
  if (r.footprint_bytes) count("FOOTPRINT_BYTES", *r.footprint_bytes);
  if (o.double_buffer)
    count(r.prefetch_bytes ? "SECOND_BUFFERS_BYTES" : "SECOND_BUFFERS_WORDS", r.prefetch_bytes.value_or(r.prefetch));
  count("WORKSPACE_WORDS", r.workspace);
  if (plan::minimises_bytes(o)) define_unfinished(plan, define);
  fmt::print("/* of all {} instances */\n", p.instances());
  count("WORDS_READ", r.io.total_reads());
  count("WORDS_WRITTEN", r.io.total_writes());
  if (plan::minimises_bytes(o)) {
    const Io bytes = plan::bytes_of(r.io, o, p.op);
    count("BYTES_READ", bytes.total_reads());
    count("BYTES_WRITTEN", bytes.total_writes());
  }
  if (r.index.reads > 0) {
    fmt::print("/* to know the pattern; not among the words above */\n");
    count("INDEX_WORDS_READ", r.index.reads);
    count("INDEX_WORDS_RESIDENT", r.index.resident);
  }
  fmt::print(
      "#elif {0}_WORDS_READ != {1}LL || {0}_WORDS_WRITTEN != {2}LL || {0}_FOOTPRINT_WORDS != {3}LL\n"
      "#error \"another plan of this operation is included already, and their macros have the same names: "
      "include each in a file of its own\"\n#endif\n",
      prefix, r.io.total_reads().str(), r.io.total_writes().str(), r.footprint.str());
}

void print_csv(const plan::Plan& plan) {
  const bool index = has_index_words(plan), bytes = plan::minimises_bytes(plan.options);
  fmt::print(
      "operation,schedule,tiling,reads,writes,io,{}ratio,work,footprint,footprint_bytes,workspace,may_be_chosen{}\n",
      bytes ? "bytes," : "", index ? ",index_words,index_footprint" : "");
  const auto line = [index, bytes](const plan::Plan& of, const plan::Row& r) {
    fmt::print("{},{},{},{},{},{},{}{},{:.4f},{},{},{},{}{}\n", name_of(of.problem.op), r.schedule,
               plan::text_of(r.tiling), r.io.total_reads().str(), r.io.total_writes().str(), r.io.total().str(),
               bytes ? r.bytes->str() + "," : "", ratio_text(r), r.work, r.footprint.str(),
               r.footprint_bytes ? r.footprint_bytes->str() : "", r.workspace.str(), of.may_choose(r) ? 1 : 0,
               index ? "," + index_text(r, ",") : "");
  };
  if (plan.forward) line(*plan.forward, plan.forward->row());  // runs first; the ratios below include it
  for (const plan::Row& r : plan.rows) line(plan, r);
}

void print_markdown(const plan::Plan& plan) {
  const bool held_in_bytes = plan.options.memory.has_value(), bytes = plan::minimises_bytes(plan.options);
  const auto moved = [bytes](const plan::Row& r) { return bytes ? fmt::format(" {} |", r.bytes->str()) : ""; };
  if (plan.forward)
    fmt::print("First {} ({}) for o and lse: {} words{}, which the ratios below include.\n\n",
               plan.forward->row().schedule, plan::text_of(plan.forward->row().tiling),
               plan.forward->row().io.total().str(),
               bytes ? fmt::format(", {} bytes", plan.forward->row().bytes->str()) : "");
  const bool index = has_index_words(plan);
  fmt::print("| schedule | tiling | reads | writes | I/O words |{} ratio | work | footprint, {} | workspace |{}\n",
             bytes ? " bytes moved |" : "", held_in_bytes ? "bytes" : "words",
             index ? " index words | resident |" : "");
  fmt::print("|---|---|---|---|---|---|---|---|---|{}{}\n", bytes ? "---|" : "", index ? "---|---|" : "");
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const plan::Row& r = plan.rows[i];
    const std::string_view bold = i == plan.chosen ? "**" : "";
    fmt::print("| {0}{1}{0} | {2} | {3} | {4} | {5} |{6} {7} | {8:.2f} | {9} | {10} |{11}\n", bold, r.schedule,
               plan::text_of(r.tiling), r.io.total_reads().str(), r.io.total_writes().str(), r.io.total().str(),
               moved(r), ratio_text(r), r.work, r.footprint_bytes.value_or(r.footprint).str(), r.workspace.str(),
               index ? " " + index_text(r, " | ") + " |" : "");
  }
}

}  // namespace redblue::cli
