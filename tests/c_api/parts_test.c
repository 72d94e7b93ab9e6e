/* Attention to some of the keys at a time, and merges, against attention to all keys. */
#include <math.h>
#include <redblue.h>

#include "check.h"

enum { kHeads = 2, kQueries = 5, kKeys = 7, kFirst = 3, kD = 4, kDv = 3 };
enum { kQ = kHeads * kQueries * kD, kK = kHeads * kKeys * kD, kV = kHeads * kKeys * kDv };
enum { kO = kHeads * kQueries * kDv, kRows = kHeads * kQueries };
static float q[kQ], k[kK], v[kV], all_o[kO], all_lse[kRows], o[kO], lse[kRows], more_o[kO], more_lse[kRows];

static int is_near(const float* x, const float* y, int n) {
  for (int i = 0; i < n; ++i)
    if (!(fabs((double)x[i] - (double)y[i]) < 2e-6) && !(isinf(x[i]) && isinf(y[i]))) return 0;
  return 1;
}

/* Attention to n keys from `begin` on into these outputs, which are given if `accumulate`. Query i stands at key
 * i + kKeys - kQueries. */
static void attend(int begin, int n, int accumulate, float* to_o, float* to_lse) {
  redblue_problem p;
  redblue_problem_init(&p);
  redblue_plan_options options;
  redblue_plan_options_init(&options);
  redblue_forward_tensors t;
  redblue_forward_tensors_init(&t);
  redblue_plan* plan = NULL;
  const int64_t of_k[] = {kK, kKeys * kD, kD, 1}, of_v[] = {kV, kKeys * kDv, kDv, 1};
  p.heads = kHeads, p.n_q = kQueries, p.n_k = n, p.d = kD, p.d_v = kDv;
  p.causal = p.has_causal_offset = 1, p.causal_offset = kKeys - kQueries - begin, p.accumulate = accumulate;
  options.fast_memory_words = 100;
  t.q.data = q, t.k.data = k + begin * kD, t.v.data = v + begin * kDv, t.o.data = to_o, t.lse.data = to_lse;
  memcpy(t.k.strides, of_k, sizeof of_k), memcpy(t.v.strides, of_v, sizeof of_v);
  CHECK(redblue_plan_create(&p, &options, &plan) == REDBLUE_OK);
  CHECK(redblue_forward(plan, &t, NULL) == REDBLUE_OK);
  redblue_plan_destroy(plan);
  p.has_causal_offset = 0;
  if (accumulate) REFUSED(redblue_plan_create(&p, &options, &plan), REDBLUE_INVALID_ARGUMENT, "give a number");
  p.has_causal_offset = p.sinks = 1;
  if (accumulate) REFUSED(redblue_plan_create(&p, &options, &plan), REDBLUE_INVALID_ARGUMENT, "sink");
}

/* Keys and values of int8 with a scale for each 4 keys, against the same numbers in floats. */
static void test_int8(void) {
  enum { kBlock = 4, kBlocks = (kKeys + kBlock - 1) / kBlock };
  signed char k8[kK], v8[kV];
  float k_scales[kHeads * kBlocks], v_scales[kHeads * kBlocks];
  redblue_problem p;
  redblue_problem_init(&p);
  redblue_plan_options options;
  redblue_plan_options_init(&options);
  redblue_forward_tensors t;
  redblue_forward_tensors_init(&t);
  redblue_plan_info info;
  redblue_plan_info_init(&info);
  redblue_plan* plan = NULL;
  for (int i = 0; i < kHeads * kBlocks; ++i)
    k_scales[i] = 0.001f * (float)(i + 5), v_scales[i] = 0.002f * (float)(9 - i % 7);
  for (int i = 0; i < kK; ++i) {
    k8[i] = (signed char)(i * 37 % 255 - 127);
    k[i] = (float)k8[i] * k_scales[i / (kKeys * kD) * kBlocks + i / kD % kKeys / kBlock];
  }
  for (int i = 0; i < kV; ++i) {
    v8[i] = (signed char)(i * 91 % 255 - 127);
    v[i] = (float)v8[i] * v_scales[i / (kKeys * kDv) * kBlocks + i / kDv % kKeys / kBlock];
  }
  p.heads = kHeads, p.n_q = kQueries, p.n_k = kKeys, p.d = kD, p.d_v = kDv;
  options.fast_memory_bytes = 400, options.keys_per_scale = kBlock;
  CHECK(redblue_plan_create(&p, &options, &plan) == REDBLUE_OK);
  CHECK(redblue_plan_describe(plan, &info) == REDBLUE_OK);
  CHECK(info.bytes_moved > 0 && info.bytes_moved < 4 * (info.words_read + info.words_written));
  t.q.data = q, t.k.data = k, t.v.data = v, t.o.data = all_o, t.lse.data = all_lse;
  CHECK(redblue_forward(plan, &t, NULL) == REDBLUE_OK);
  const redblue_scales of_k = {k_scales, kBlock, 0, kBlocks, 1}, of_v = {v_scales, kBlock, 0, kBlocks, 1};
  t.k.data = k8, t.v.data = v8, t.k.dtype = t.v.dtype = REDBLUE_INT8, t.o.data = o, t.lse.data = lse;
  REFUSED(redblue_forward(plan, &t, NULL), REDBLUE_INVALID_ARGUMENT, "has no scales");
  t.k_scales = of_k, t.v_scales = of_v;
  CHECK(redblue_forward(plan, &t, NULL) == REDBLUE_OK);
  CHECK(is_near(o, all_o, kO));
  CHECK(is_near(lse, all_lse, kRows));
  t.q.dtype = REDBLUE_INT8;
  REFUSED(redblue_forward(plan, &t, NULL), REDBLUE_UNSUPPORTED, "only k and v of a forward pass");
  redblue_plan_destroy(plan);
  options.dtype = REDBLUE_INT8;
  REFUSED(redblue_plan_create(&p, &options, &plan), REDBLUE_INVALID_ARGUMENT, "only k and v of a forward pass");
}

void test_parts(void) {
  for (int i = 0; i < kQ; ++i) q[i] = (float)sin(i + 1.0);
  for (int i = 0; i < kK; ++i) k[i] = (float)cos(i * 1.7);
  for (int i = 0; i < kV; ++i) v[i] = (float)sin(i * 2.3);
  attend(0, kKeys, 0, all_o, all_lse);
  for (int merges = 0; merges < 2; ++merges) {
    for (int i = 0; i < kO; ++i) o[i] = more_o[i] = 0;
    for (int i = 0; i < kRows; ++i) lse[i] = more_lse[i] = -INFINITY;
    attend(0, kFirst, 1, o, lse);
    attend(kFirst, kKeys - kFirst, 1, merges ? more_o : o, merges ? more_lse : lse);
    if (merges) {
      redblue_merge_tensors m;
      redblue_merge_tensors_init(&m);
      m.heads = kHeads, m.n_q = kQueries, m.d_v = kDv;
      m.o.data = o, m.lse.data = lse, m.more_o.data = more_o, m.more_lse.data = more_lse;
      CHECK(redblue_merge(&m, NULL) == REDBLUE_OK);
      m.more_o.dtype = REDBLUE_F16;
      REFUSED(redblue_merge(&m, NULL), REDBLUE_UNSUPPORTED, "all REDBLUE_F32");
      m.more_o.dtype = REDBLUE_F32, m.n_q = 0;
      REFUSED(redblue_merge(&m, NULL), REDBLUE_INVALID_ARGUMENT, "n_q = 0");
    }
    CHECK(is_near(o, all_o, kO));
    CHECK(is_near(lse, all_lse, kRows));
  }
  test_int8();
}
