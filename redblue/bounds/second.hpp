#pragma once
#include "redblue/bounds/bound.hpp"

/// Lower bounds for tangents and gradients of gradients. Statements and proofs: docs/theorems.md,
/// docs/proofs/second-derivatives.md.
namespace redblue::bound {

/// Every needed input word is read once, every output word written once. For any schedule.
Bound tangent_trivial(const AttentionProblem& x);
Bound second_trivial(const AttentionProblem& x);

/// The trivial bound, and F' and F'': with Q, K and V at rest, or with gQ = gK = 0, tO and LdO are P tV and P gV, the
/// outputs of a forward pass. Only the trivial one for a score function that allows P V to be reassociated.
std::vector<Bound> tangent_bounds(const AttentionProblem& x);
std::vector<Bound> second_bounds(const AttentionProblem& x);

}  // namespace redblue::bound
