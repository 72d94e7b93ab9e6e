#pragma once
#include "redblue/levels/nest.hpp"
#include "report/json.hpp"

namespace redblue::cli {

/// The borders of a nest with their words, bounds and times; what is carried out where.
void print_nest(const levels::Nest& nest);
/// The calls of the inner levels, and how each divides: the nests inside the outermost nest.
void print_inner_calls(const levels::Nest& nest);
Json to_json(const levels::Nest& nest);

}  // namespace redblue::cli
