#pragma once
#include "redblue/language/words.hpp"

/// Orders of growth that others state for sparse inputs. They have no constant, so they bound no problem: the planner
/// and the ratio to a bound never take them. docs/theorems.md, Quoted.
namespace redblue::bound {

/// Nonzero entries of the inputs of attention, and of their products, where scores are A X A^T.
struct Nonzeros {
  Words A, X, AX, AXA;
};

/// Li et al. (arXiv 2410.09397), Theorem 4.5, forward and backward with sparse products of matrices:
/// min{ (A^2 + A X)/M, (A sqrt(AXA) + sqrt(A X AX))/sqrt(M) }. The worst case over inputs with these nonzeros (the
/// bound for sparse products that it rests on is one); it says nothing of masks, which hide pairs of dense inputs.
long double sparse_inputs_order(const Nonzeros& z, Words M);

/// Where the two terms are equal (Remark 4.7): the M at which the small and the large cache divide. d^2 for dense
/// inputs.
long double sparse_inputs_dividing_point(const Nonzeros& z);

}  // namespace redblue::bound
