#include "redblue/runtime/partial.hpp"

#include "redblue/planner/plan_here.hpp"

namespace redblue {

plan::Plan plan_of_part(const Problem& p, const plan::Options& options, const RunOptions& how, DType tensors) {
  if (options.M > 0 || options.memory) return plan::make_plan(p, options);
  return make_plan_here(p, options, {how.compute, tensors, how.threads, {}});
}

namespace {

/// The problem of these tensors.
Problem problem_of(Problem p, Operation op, const Tensor& q, const Tensor& k, const Tensor& v) {
  p.op = op;
  p.accumulate = true;
  p.batch = q.shape[0];
  p.heads = q.shape[1];
  p.kv_heads = k.shape[1];
  p.n_q = q.shape[2];
  p.n_k = k.shape[2];
  p.d = q.shape[3];
  p.d_v = v.shape[3];
  return p;
}

}  // namespace

Measured attention_partial(const Inputs& in, const Outputs& into, const Problem& kind, const plan::Options& options,
                           const RunOptions& how) {
  const Problem p = problem_of(kind, Operation::forward, in.q, in.k, in.v);
  return run(plan_of_part(p, options, how, in.q.dtype), in, into, how);
}

Measured attention_partial(const BackwardInputs& in, const BackwardOutputs& into, const Problem& kind,
                           const plan::Options& options, const RunOptions& how) {
  const Problem p = problem_of(kind, Operation::backward, in.q, in.k, in.v);
  return run(plan_of_part(p, options, how, in.q.dtype), in, into, how);
}

Measured merge(const MergeInputs& part, const Outputs& into, const plan::Options& options, const RunOptions& how) {
  const Tensor& o = into.o;
  Problem p{.op = Operation::merge, .batch = o.shape[0], .heads = o.shape[1], .n_q = o.shape[2], .n_k = 1, .d = 1};
  p.d_v = o.shape[3];
  plan::Options some = options;
  if (some.M == 0 && !some.memory) {  // all move the same words
    p.validate();
    constexpr index_t kRowsAtOnce = 64;
    some.M = Words(kRowsAtOnce) * (p.d_v + 3) + 1;
  }
  return run(plan::make_plan(p, some), part, into, how);
}

}  // namespace redblue
