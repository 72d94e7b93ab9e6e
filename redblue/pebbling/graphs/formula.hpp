#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace redblue::pebbling {

/// Formulas are postfix, their tokens one blank apart: the parents x0, x1, ..; numbers (inf and -inf, too); + - * /
/// max, of the two values before them; exp log tanh, of one. "x0 x1 x2 - exp x3 * +" is x0 + exp(x1 - x2) x3.

/// A formula as redblue writes it, and how many parents it asks for.
struct Formula {
  std::string text;         ///< each number in its shortest form
  std::size_t parents = 0;  ///< the last one that it names, from 1
};
/// Throws Error, saying which token is wrong, if this is no formula of this number of parents.
Formula read_formula(std::string_view formula, std::size_t parents);
/// Its value in fp64. Throws as read_formula does.
double evaluate_formula(std::string_view formula, std::span<const double> parents);

}  // namespace redblue::pebbling
