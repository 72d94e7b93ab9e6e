#pragma once
#include <string>

#include "redblue/planner/planner.hpp"

/// A plan as text for other programs and pages.
namespace redblue::cli {

/// The chosen row as macros of C: REDBLUE_SCHEDULE, the sizes, each tile size by its name, words and bytes.
void print_c_header(const plan::Plan& plan);
/// Does a row read an index to know its pattern?
bool has_index_words(const plan::Plan& plan);
/// "theorem F'"; with the class of schedules, where it is a part of class PA only.
std::string theorem_of(const bound::Bound& bound);
/// A line for every row, the chosen one first.
void print_csv(const plan::Plan& plan);
/// A table of all rows, the chosen one in bold.
void print_markdown(const plan::Plan& plan);

}  // namespace redblue::cli
