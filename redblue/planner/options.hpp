#pragma once
#include "redblue/planner/planner.hpp"
#include "redblue/problem/option.hpp"

/// The options of a plan: redblue/problem/option.hpp says what is made of this table. Fast memory, the widths of words
/// and the cap, which are given in units of their own, are not among them.
namespace redblue::plan {

/// For JSON in the order of this table. Python's keywords are the program's flags.
constexpr auto plan_options() {
  constexpr auto kAlways = [](const Options& /*o*/) { return true; };
  return std::tuple{
      REDBLUE_OPTION(Options, quadratic_workspace,
                     {.help = "no n x n scores in slow memory", .flag = "--no-workspace", .matters = kAlways}),
      REDBLUE_OPTION(Options, reserve,
                     {.help = "words of fast memory to leave free (2: strict Hong-Kung play)",
                      .flag = "--reserve",
                      .unit = "WORDS",
                      .allowed = {": give 0 or more words", 0},
                      .matters = kAlways}),
      REDBLUE_OPTION(Options, double_buffer,
                     {.help = "leave room for a second buffer of each block that arrives in the innermost loop",
                      .flag = "--double-buffer",
                      .matters = kAlways}),
      REDBLUE_OPTION(Options, keys_per_scale,
                     {.help = "K and V are int8: how many keys of a head share an fp32 scale (n_k: all); bytes count",
                      .flag = "--keys-per-scale",
                      .unit = "KEYS",
                      .allowed = {": give the keys that share a scale, n_k for one scale for each head, or 0 for "
                                  "keys and values of floats",
                                  0},
                      .matters = [](const Options& o) { return o.keys_per_scale > 0; }}),
      REDBLUE_OPTION(Options, multiple,
                     {.help = "tile sizes must be multiples: q=16,k=16,f=8 (queries, keys, features)",
                      .source = option::Source::phrase,
                      .matters = kAlways}),
      REDBLUE_OPTION(Options, write_cost,
                     {.help = "cost of a written word in read words",
                      .flag = "--write-cost",
                      .unit = "X",
                      .allowed = {": give a number from 0 to 1000000", 0, 1000000},
                      .matters = kAlways}),
      REDBLUE_OPTION(Options, reorder,
                     {.help = "may the planner choose the order of queries and keys under a pattern?",
                      .source = option::Source::phrase,
                      .matters = [](const Options& /*o*/) { return false; }}),
      REDBLUE_OPTION(
          Options, schedule,
          {.help = "plan this one only", .flag = "--schedule", .unit = "NAME", .source = option::Source::phrase}),
  };
}

}  // namespace redblue::plan
