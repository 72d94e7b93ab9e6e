#pragma once
#include "redblue/runtime/run.hpp"

/// Attention to some of the keys at a time: each call goes on from what the calls before it gave. The order of the
/// parts does not matter beyond roundings. docs/algorithms/accumulating.md.
///
/// ```
/// for (const Part& part : parts)  // lse is -infinity at first
///   redblue::attention_partial({q, part.k, part.v}, {o, lse});
/// ```
namespace redblue {

/// Attends to these keys into o and lse, which hold what attention to other keys gave: o its output, lse the natural
/// logarithm of the sum of its weights. Where there were none lse is -infinity, and o may hold anything. Rows that see
/// none of these keys stay as they are. o and lse have the type of the arithmetic, f32 or f64. `kind` has masks, scale,
/// bias and so on: its sizes are those of the tensors, and its causal_offset, without which masks and ALiBi are
/// refused, is that of these keys. Without M or memory in the options the plan is of least time on this machine. Throws
/// what plans and runs throw.
Measured attention_partial(const Inputs& in, const Outputs& into, const Problem& kind = {},
                           const plan::Options& options = {}, const RunOptions& how = {});

/// Adds the gradients with respect to q and these keys and values to dq, dk and dv, from o and lse of all keys.
Measured attention_partial(const BackwardInputs& in, const BackwardOutputs& into, const Problem& kind = {},
                           const plan::Options& options = {}, const RunOptions& how = {});

/// The plan of such a call: of the fewest words where the options have M or memory, else of least time on this machine,
/// for tensors of this type.
plan::Plan plan_of_part(const Problem& problem, const plan::Options& options, const RunOptions& how, DType tensors);

/// Attention to two sets of keys becomes attention to both: `part` is added to o and lse.
Measured merge(const MergeInputs& part, const Outputs& into, const plan::Options& options = {},
               const RunOptions& how = {});

}  // namespace redblue
