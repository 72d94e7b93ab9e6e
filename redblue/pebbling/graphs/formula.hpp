#pragma once
#include <cstddef>
#include <span>
#include <string_view>

namespace redblue::pebbling {

/// Formulas are postfix, their tokens one blank apart: the parents x0, x1, ..; numbers (inf and -inf, too); + - * /
/// max, of the two values before them; exp log tanh, of one. "x0 x1 x2 - exp x3 * +" is x0 + exp(x1 - x2) x3.

/// Throws Error, saying which token is wrong, if this is no formula of this number of parents.
void check_formula(std::string_view formula, std::size_t parents);
/// Its value in fp64. Throws as check_formula does.
double evaluate_formula(std::string_view formula, std::span<const double> parents);

}  // namespace redblue::pebbling
