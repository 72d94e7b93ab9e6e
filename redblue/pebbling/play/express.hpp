#pragma once
#include <map>

#include "redblue/pebbling/play/live_graph.hpp"
#include "redblue/pebbling/play/symbol.hpp"

namespace redblue::pebbling {

/// The expressions that nodes hold.
using Holders = std::map<Expr, Node>;

/// Can it be computed from these, without the one of `but`?
bool is_computable(Symbol s, const Holders& from, Expr but = kNoExpr);
/// How it is computed from these, by one node: a plain operation where there is one, else a formula. It must be
/// computable, and not itself be held.
Recipe recipe_for(Symbol s, const Holders& from);

}  // namespace redblue::pebbling
