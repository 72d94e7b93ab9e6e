#include "plan_formats.hpp"

#include <fmt/format.h>

#include <cctype>

namespace redblue::cli {

namespace {

/// "S.b1" as "S_B1".
std::string macro_name(std::string_view knob) {
  std::string name;
  for (const char c : knob)
    name += std::isalnum(static_cast<unsigned char>(c)) != 0
                ? static_cast<char>(std::toupper(static_cast<unsigned char>(c)))
                : '_';
  return name;
}

std::string ratio_text(const plan::Row& r) { return r.ratio ? fmt::format("{:.4f}", *r.ratio) : ""; }

}  // namespace

void print_c_header(const plan::Plan& plan) {
  const Problem& p = plan.problem;
  const plan::Row& r = plan.row();
  fmt::print("/* redblue plan, {} on one head (or group of heads that share K and V).\n   {} */\n", name_of(p.op),
             plan.reason);
  fmt::print("#ifndef REDBLUE_PLAN_H\n#define REDBLUE_PLAN_H\n");
  const auto define = [](std::string_view name, const auto& value) {
    fmt::print("#define REDBLUE_{} {}\n", name, value);
  };
  define("SCHEDULE", fmt::format("\"{}\"", r.schedule));
  for (const auto& [name, value] :
       {std::pair("N_Q", p.sizes().n_q), std::pair("N_K", p.n_k), std::pair("D", p.d), std::pair("D_V", p.d_v)})
    define(name, value);
  for (const schedule::Knob& k : r.tiling) define(macro_name(k.name), k.value);
  const auto count = [&](std::string_view name, const Words& words) { define(name, words.str() + "LL"); };
  count("FOOTPRINT_WORDS", r.footprint);
  if (r.footprint_bytes) count("FOOTPRINT_BYTES", *r.footprint_bytes);
  count("WORKSPACE_WORDS", r.workspace);
  fmt::print("/* of all {} instances */\n", p.instances());
  count("WORDS_READ", r.io.total_reads());
  count("WORDS_WRITTEN", r.io.total_writes());
  fmt::print("#endif\n");
}

void print_csv(const plan::Plan& plan) {
  fmt::print("schedule,tiling,reads,writes,io,ratio,work,footprint,footprint_bytes,workspace,may_be_chosen\n");
  for (const plan::Row& r : plan.rows)
    fmt::print("{},{},{},{},{},{},{:.4f},{},{},{},{}\n", r.schedule, plan::text_of(r.tiling), r.io.total_reads().str(),
               r.io.total_writes().str(), r.io.total().str(), ratio_text(r), r.work, r.footprint.str(),
               r.footprint_bytes ? r.footprint_bytes->str() : "", r.workspace.str(), plan.may_choose(r) ? 1 : 0);
}

void print_markdown(const plan::Plan& plan) {
  const bool bytes = plan.options.memory.has_value();
  fmt::print("| schedule | tiling | reads | writes | I/O words | ratio | work | footprint, {} | workspace |\n",
             bytes ? "bytes" : "words");
  fmt::print("|---|---|---|---|---|---|---|---|---|\n");
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const plan::Row& r = plan.rows[i];
    const std::string_view bold = i == plan.chosen ? "**" : "";
    fmt::print("| {0}{1}{0} | {2} | {3} | {4} | {5} | {6} | {7:.2f} | {8} | {9} |\n", bold, r.schedule,
               plan::text_of(r.tiling), r.io.total_reads().str(), r.io.total_writes().str(), r.io.total().str(),
               ratio_text(r), r.work, r.footprint_bytes.value_or(r.footprint).str(), r.workspace.str());
  }
}

}  // namespace redblue::cli
