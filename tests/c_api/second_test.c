/* Tangents and gradients of gradients against central differences of forward and backward runs. */
#include <math.h>
#include <redblue.h>
#include <stdlib.h>

#include "check.h"

enum { kHeads = 4, kKvHeads = 2, kQueries = 5, kKeys = 7, kD = 4, kDv = 3, kRows = kHeads * kQueries };
enum { kQ = kRows * kD, kK = kKvHeads * kKeys * kD, kV = kKvHeads * kKeys * kDv, kO = kRows * kDv };
enum { kBias = kQueries * kKeys, kSinks = kHeads };
/* All that the runs read, one after the other, and the directions in which it moves. */
enum { kAll = kQ + kK + kV + kO + kRows + kBias + kSinks };
static double inputs[kAll], along[kAll], gq[kQ], gk[kK], gv[kV], gbias[kBias], gsinks[kSinks], o[kO], lse[kRows];
static double *const q = inputs, *const k = inputs + kQ, *const v = inputs + kQ + kK,
                     *const d_o = inputs + kQ + kK + kV, *const dlse = inputs + kQ + kK + kV + kO,
                     *const bias = inputs + kQ + kK + kV + kO + kRows, *const sinks = inputs + kAll - kSinks;

static redblue_plan* plan_of(redblue_operation operation, int forward_missing) {
  redblue_problem p;
  redblue_problem_init(&p);
  redblue_plan_options options;
  redblue_plan_options_init(&options);
  redblue_plan* plan = NULL;
  p.operation = operation, p.forward_missing = forward_missing;
  p.heads = kHeads, p.kv_heads = kKvHeads, p.n_q = kQueries, p.n_k = kKeys, p.d = kD, p.d_v = kDv;
  p.causal = 1, p.has_bias = 1;
  p.bias_shape[0] = p.bias_shape[1] = 1, p.bias_shape[2] = kQueries, p.bias_shape[3] = kKeys;
  p.bias_gradient = operation == REDBLUE_BACKWARD;
  p.bias_direction = p.sinks_direction = operation == REDBLUE_TANGENT || operation == REDBLUE_SECOND;
  p.sinks = 1, p.sinks_gradient = operation == REDBLUE_BACKWARD;
  p.lse_gradient = operation == REDBLUE_BACKWARD || operation == REDBLUE_SECOND;
  options.compute = options.dtype = REDBLUE_F64, options.fast_memory_words = 200;
  CHECK(redblue_plan_create(&p, &options, &plan) == REDBLUE_OK);
  return plan;
}

static void forward(void) {
  redblue_plan* plan = plan_of(REDBLUE_FORWARD, 0);
  redblue_forward_tensors t;
  redblue_forward_tensors_init(&t);
  t.q.dtype = t.k.dtype = t.v.dtype = t.o.dtype = t.lse.dtype = t.bias.dtype = t.sinks.dtype = REDBLUE_F64;
  t.q.data = q, t.k.data = k, t.v.data = v, t.o.data = o, t.lse.data = lse, t.bias.data = bias, t.sinks.data = sinks;
  CHECK(redblue_forward(plan, &t, NULL) == REDBLUE_OK);
  redblue_plan_destroy(plan);
}

/* <gq, dq> + <gk, dk> + <gv, dv> + <gbias, dbias> + <gsinks, dsinks> */
static double loss(void) {
  static double dq[kQ], dk[kK], dv[kV], dbias[kBias], dsinks[kSinks];
  redblue_plan* plan = plan_of(REDBLUE_BACKWARD, 0);
  redblue_backward_tensors t;
  redblue_backward_tensors_init(&t);
  forward();
  t.q.dtype = t.k.dtype = t.v.dtype = t.o.dtype = t.lse.dtype = t.d_o.dtype = t.dlse.dtype = REDBLUE_F64;
  t.dq.dtype = t.dk.dtype = t.dv.dtype = t.bias.dtype = t.dbias.dtype = REDBLUE_F64;
  t.sinks.dtype = t.dsinks.dtype = REDBLUE_F64, t.sinks.data = sinks, t.dsinks.data = dsinks;
  t.q.data = q, t.k.data = k, t.v.data = v, t.o.data = o, t.lse.data = lse, t.d_o.data = d_o, t.dlse.data = dlse;
  t.dq.data = dq, t.dk.data = dk, t.dv.data = dv, t.bias.data = bias, t.dbias.data = dbias;
  CHECK(redblue_backward(plan, &t, NULL) == REDBLUE_OK);
  redblue_plan_destroy(plan);
  double sum = 0;
  for (int i = 0; i < kQ; ++i) sum += gq[i] * dq[i];
  for (int i = 0; i < kK; ++i) sum += gk[i] * dk[i];
  for (int i = 0; i < kV; ++i) sum += gv[i] * dv[i];
  for (int i = 0; i < kBias; ++i) sum += gbias[i] * dbias[i];
  for (int i = 0; i < kSinks; ++i) sum += gsinks[i] * dsinks[i];
  return sum;
}

static void move(double step) {
  for (int i = 0; i < kAll; ++i) inputs[i] += step * along[i];
}

static redblue_tangent_tensors tangent_tensors(double* to, double* tlse) {
  redblue_tangent_tensors t;
  redblue_tangent_tensors_init(&t);
  t.q.dtype = t.k.dtype = t.v.dtype = t.o.dtype = t.lse.dtype = t.tq.dtype = t.tk.dtype = t.tv.dtype = REDBLUE_F64;
  t.to.dtype = t.tlse.dtype = t.bias.dtype = t.tbias.dtype = REDBLUE_F64;
  t.sinks.dtype = t.tsinks.dtype = REDBLUE_F64, t.sinks.data = sinks, t.tsinks.data = along + kAll - kSinks;
  t.bias.data = bias, t.tbias.data = along + kAll - kSinks - kBias;
  t.q.data = q, t.k.data = k, t.v.data = v, t.o.data = o, t.lse.data = lse;
  t.tq.data = along, t.tk.data = along + kQ, t.tv.data = along + kQ + kK, t.to.data = to, t.tlse.data = tlse;
  return t;
}

static void test_tangent(void) {
  static double to[kO], tlse[kRows], above[kO + kRows];
  const double step = 1e-5;
  redblue_plan* plans[] = {plan_of(REDBLUE_TANGENT, 0), plan_of(REDBLUE_TANGENT, 1)};
  move(step), forward();
  memcpy(above, o, sizeof o), memcpy(above + kO, lse, sizeof lse);
  move(-2 * step), forward();
  for (int i = 0; i < kO; ++i) above[i] = (above[i] - o[i]) / (2 * step);
  for (int i = 0; i < kRows; ++i) above[kO + i] = (above[kO + i] - lse[i]) / (2 * step);
  move(step), forward();
  redblue_tangent_tensors t = tangent_tensors(to, tlse);
  for (int missing = 0; missing < 2; ++missing) {
    memset(to, 0, sizeof to), memset(tlse, 0, sizeof tlse);
    if (missing) t.o.data = t.lse.data = NULL;
    CHECK(redblue_tangent(plans[missing], &t, NULL) == REDBLUE_OK);
    for (int i = 0; i < kO; ++i) CHECK(fabs(to[i] - above[i]) < 1e-8);
    for (int i = 0; i < kRows; ++i) CHECK(fabs(tlse[i] - above[kO + i]) < 1e-8);
  }
  REFUSED(redblue_tangent(plans[0], &t, NULL), REDBLUE_INVALID_ARGUMENT, "tensor o has no data");
  redblue_plan_destroy(plans[0]), redblue_plan_destroy(plans[1]);
}

static redblue_second_tensors second_tensors(double* found) {
  redblue_second_tensors t;
  redblue_second_tensors_init(&t);
  t.q.dtype = t.k.dtype = t.v.dtype = t.o.dtype = t.lse.dtype = t.d_o.dtype = t.dlse.dtype = REDBLUE_F64;
  t.gq.dtype = t.gk.dtype = t.gv.dtype = t.bias.dtype = t.gbias.dtype = t.lbias.dtype = REDBLUE_F64;
  t.lq.dtype = t.lk.dtype = t.lv.dtype = t.ld_o.dtype = t.ldlse.dtype = REDBLUE_F64;
  t.q.data = q, t.k.data = k, t.v.data = v, t.o.data = o, t.lse.data = lse, t.d_o.data = d_o, t.dlse.data = dlse;
  t.gq.data = gq, t.gk.data = gk, t.gv.data = gv;
  t.lq.data = found, t.lk.data = found + kQ, t.lv.data = found + kQ + kK, t.ld_o.data = found + kQ + kK + kV;
  t.ldlse.data = found + kQ + kK + kV + kO;
  t.bias.data = bias, t.gbias.data = gbias, t.lbias.data = found + kAll - kSinks - kBias;
  t.sinks.dtype = t.gsinks.dtype = t.lsinks.dtype = REDBLUE_F64;
  t.sinks.data = sinks, t.gsinks.data = gsinks, t.lsinks.data = found + kAll - kSinks;
  return t;
}

static void test_gradients_of_gradients(void) {
  static double found[kAll];
  const double step = 1e-5;
  redblue_plan* plan = plan_of(REDBLUE_SECOND, 0);
  move(step);
  double expected = loss(), sum = 0;
  move(-2 * step);
  expected = (expected - loss()) / (2 * step);
  move(step), forward();
  redblue_second_tensors t = second_tensors(found);
  CHECK(redblue_second(plan, &t, NULL) == REDBLUE_OK);
  for (int i = 0; i < kAll; ++i) sum += found[i] * along[i];
  CHECK(fabs(sum - expected) < 1e-7);

  redblue_run_options run;
  redblue_run_options_init(&run);
  CHECK(redblue_second_workspace(plan, &t, NULL, &run.workspace_size) == REDBLUE_OK && run.workspace_size > 0);
  run.workspace = malloc(run.workspace_size);
  memset(found, 0, sizeof found);
  CHECK(redblue_second(plan, &t, &run) == REDBLUE_OK);
  for (int i = 0; i < kAll; ++i) sum -= found[i] * along[i];
  CHECK(fabs(sum) < 1e-12);
  --run.workspace_size;
  REFUSED(redblue_second(plan, &t, &run), REDBLUE_NOT_ENOUGH_MEMORY, "the memory given is ");
  free(run.workspace);
  t.ldlse.data = dlse;
  REFUSED(redblue_second(plan, &t, NULL), REDBLUE_INVALID_ARGUMENT, "overlap");
  t.ldlse.data = NULL;
  REFUSED(redblue_second(plan, &t, NULL), REDBLUE_INVALID_ARGUMENT, "tensor ldlse has no data");
  redblue_plan_destroy(plan);
}

static void test_wrong_plans(void) {
  static double to[kO], tlse[kRows];
  size_t bytes = 0;
  redblue_plan *second = plan_of(REDBLUE_SECOND, 0), *tangent = plan_of(REDBLUE_TANGENT, 1), *plan = NULL;
  const redblue_tangent_tensors t = tangent_tensors(to, tlse);
  REFUSED(redblue_tangent(second, &t, NULL), REDBLUE_INVALID_ARGUMENT, "this plan is for second: call redblue_second");
  REFUSED(redblue_second_workspace(tangent, NULL, NULL, &bytes), REDBLUE_INVALID_ARGUMENT, "call redblue_tangent");
  CHECK(redblue_tangent_workspace(tangent, NULL, NULL, &bytes) == REDBLUE_OK && bytes > 0);
  redblue_plan_info info;
  redblue_plan_info_init(&info);
  CHECK(redblue_plan_describe(tangent, &info) == REDBLUE_OK && info.forward_schedule != NULL && info.words_read > 0);
  redblue_plan_destroy(second), redblue_plan_destroy(tangent);
  redblue_problem p;
  redblue_problem_init(&p);
  redblue_plan_options options;
  redblue_plan_options_init(&options);
  p.operation = REDBLUE_TANGENT, p.n_q = p.n_k = p.d = 8, p.approximate_degree = 2, p.approximate_range = 1;
  options.fast_memory_words = 100;
  CHECK(redblue_plan_create(&p, &options, &plan) != REDBLUE_OK);
  p.approximate_degree = 0, p.approximate_range = 0, p.operation = REDBLUE_SECOND, p.softcap = 2,
  p.has_bias = p.bias_direction = 1;
  for (int side = 0; side < 4; ++side) p.bias_shape[side] = side < 2 ? 1 : 8;
  CHECK(redblue_plan_create(&p, &options, &plan) == REDBLUE_OK);  // a bias may move under a softcap
  redblue_plan_destroy(plan), plan = NULL;
  p.operation = 6;
  REFUSED(redblue_plan_create(&p, &options, &plan), REDBLUE_INVALID_ARGUMENT, "operation = 6: give REDBLUE_FORWARD");
}

void test_second(void) {
  for (int i = 0; i < kAll; ++i) inputs[i] = sin(i * 1.3 + 1), along[i] = cos(i * 0.7);
  for (int i = 0; i < kQ; ++i) gq[i] = sin(i * 2.1);
  for (int i = 0; i < kK; ++i) gk[i] = cos(i * 1.9);
  for (int i = 0; i < kV; ++i) gv[i] = sin(i * 0.9 + 2);
  for (int i = 0; i < kBias; ++i) gbias[i] = cos(i * 2.3);
  for (int i = 0; i < kSinks; ++i) gsinks[i] = sin(i * 1.7 + 1);
  test_tangent();
  test_gradients_of_gradients();
  test_wrong_plans();
}
