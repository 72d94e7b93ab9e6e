/* Second derivatives: how attention moves along with its arrays, and the gradients of its gradients, in memory that
 * grows as n d (docs/algorithms/second-derivatives.md). redblue.h includes this header.
 *
 * Plans for REDBLUE_TANGENT and REDBLUE_SECOND take what a problem of REDBLUE_BACKWARD takes, o and lse of a forward
 * pass among it, or forward_missing. slopes are at rest: they do not move, and get no gradients. So are bias, unless
 * the problem has bias_direction, and sinks, unless it has sinks_direction. */
#ifndef REDBLUE_SECOND_H
#define REDBLUE_SECOND_H

#include "redblue.h"

#ifdef __cplusplus
extern "C" {
#endif

/* q, k and v move along tq, tk and tv, which have their shapes; to and tlse, shaped like o and lse, get how these move.
 * Give zeros for what is at rest. tbias, shaped like bias, is used where the problem has bias_direction, and
 * tsinks, shaped like sinks, where it has sinks_direction. */
typedef struct redblue_tangent_tensors {
  size_t struct_size;
  redblue_const_tensor q, k, v, o, lse, tq, tk, tv;
  redblue_tensor to, tlse;
  redblue_const_tensor bias, slopes, sinks;
  redblue_const_tensor tbias;
  redblue_const_tensor tsinks;
} redblue_tangent_tensors;

/* lq, lk, lv, ld_o and ldlse get the gradients of SUM gq dq + SUM gk dk + SUM gv dv in q, k, v, d_o and dlse, whose
 * shapes they have: dq, dk and dv are what redblue_backward makes of these q, k, v, d_o and dlse. gq, gk and gv have
 * the shapes of q, k and v. dlse and ldlse are used where the problem has lse_gradient. Where it has bias_direction,
 * SUM gbias dbias is added to the sum, and lbias gets its gradient in the bias: both are shaped like bias. So it is
 * with sinks_direction, gsinks, dsinks and lsinks, shaped like sinks. For a query whose bias holds nothing but the
 * lowest number redblue_backward_tensors says what to do. */
typedef struct redblue_second_tensors {
  size_t struct_size;
  redblue_const_tensor q, k, v, o, lse, d_o, gq, gk, gv;
  redblue_tensor lq, lk, lv, ld_o;
  redblue_const_tensor bias, slopes, sinks;
  redblue_const_tensor dlse;
  redblue_tensor ldlse;
  redblue_const_tensor gbias;
  redblue_tensor lbias;
  redblue_const_tensor gsinks;
  redblue_tensor lsinks;
} redblue_second_tensors;

static inline void redblue_tangent_tensors_init(redblue_tangent_tensors* s) {
  redblue_init(REDBLUE_STRUCT_TANGENT_TENSORS, s, sizeof *s);
}
static inline void redblue_second_tensors_init(redblue_second_tensors* s) {
  redblue_init(REDBLUE_STRUCT_SECOND_TENSORS, s, sizeof *s);
}

/* As redblue_backward_workspace. */
REDBLUE_API redblue_status redblue_tangent_workspace(const redblue_plan* plan, const redblue_tangent_tensors* tensors,
                                                     const redblue_run_options* options, size_t* bytes);
REDBLUE_API redblue_status redblue_second_workspace(const redblue_plan* plan, const redblue_second_tensors* tensors,
                                                    const redblue_run_options* options, size_t* bytes);

/* Runs a plan for REDBLUE_TANGENT. */
REDBLUE_API redblue_status redblue_tangent(const redblue_plan* plan, const redblue_tangent_tensors* tensors,
                                           const redblue_run_options* options);
/* Runs a plan for REDBLUE_SECOND. */
REDBLUE_API redblue_status redblue_second(const redblue_plan* plan, const redblue_second_tensors* tensors,
                                          const redblue_run_options* options);

#ifdef __cplusplus
}
#endif

#endif /* REDBLUE_SECOND_H */
