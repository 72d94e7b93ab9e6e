/* The C interface from C: results against plain loops in double, and every way to call it wrongly. */
#include <math.h>
#include <redblue.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

int failures = 0;

enum { kHeads = 2, kQueries = 5, kKeys = 7, kD = 4, kDv = 3 };
enum { kQ = kHeads * kQueries * kD, kK = kHeads * kKeys * kD, kV = kHeads * kKeys * kDv, kO = kHeads * kQueries * kDv };
static float q[kQ], k[kK], v[kV], o[kO], lse[kHeads * kQueries], d_o[kO], dq[kQ], dk[kK], dv[kV];
static double o_is[kO], lse_is[kHeads * kQueries], dq_is[kQ], dk_is[kK], dv_is[kV];

/* Does query i of head h see key j? */
typedef int (*Sees)(int h, int i, int j);
/* Where query i stands among the keys: the last at the last. */
static int place(int i) { return i + kKeys - kQueries; }
static int sees_causal(int h, int i, int j) { return (void)h, j <= place(i); }

/* Attention and its gradients. A query that sees no key has o = 0, lse = -inf and no part in the gradients. */
static void plain(Sees sees) {
  const double scale = 1 / sqrt((double)kD);
  memset(o_is, 0, sizeof o_is), memset(dq_is, 0, sizeof dq_is);
  memset(dk_is, 0, sizeof dk_is), memset(dv_is, 0, sizeof dv_is);
  for (int h = 0; h < kHeads; ++h)
    for (int i = 0; i < kQueries; ++i) {
      const int row = h * kQueries + i;
      double weight[kKeys], sum = 0, dots = 0;
      for (int j = 0; j < kKeys; ++j) {
        double s = 0;
        weight[j] = 0;
        if (!sees(h, i, j)) continue;
        for (int t = 0; t < kD; ++t) s += (double)q[row * kD + t] * (double)k[(h * kKeys + j) * kD + t];
        weight[j] = exp(scale * s), sum += weight[j];
      }
      lse_is[row] = sum > 0 ? log(sum) : -INFINITY;
      for (int j = 0; sum > 0 && j < kKeys; ++j) {
        weight[j] /= sum;
        for (int t = 0; t < kDv; ++t) o_is[row * kDv + t] += weight[j] * (double)v[(h * kKeys + j) * kDv + t];
      }
      for (int t = 0; t < kDv; ++t) dots += (double)d_o[row * kDv + t] * o_is[row * kDv + t];
      for (int j = 0; j < kKeys; ++j) {
        double dp = 0;
        for (int t = 0; t < kDv; ++t) {
          dp += (double)d_o[row * kDv + t] * (double)v[(h * kKeys + j) * kDv + t];
          dv_is[(h * kKeys + j) * kDv + t] += weight[j] * (double)d_o[row * kDv + t];
        }
        const double ds = scale * weight[j] * (dp - dots);
        for (int t = 0; t < kD; ++t) {
          dq_is[row * kD + t] += ds * (double)k[(h * kKeys + j) * kD + t];
          dk_is[(h * kKeys + j) * kD + t] += ds * (double)q[row * kD + t];
        }
      }
    }
}

static int is_close(const float* x, const double* expected, int n) {
  for (int i = 0; i < n; ++i)
    if (!(fabs((double)x[i] - expected[i]) < 2e-6) && !(isinf(x[i]) && isinf(expected[i]))) return 0;
  return 1;
}

static redblue_problem problem_of(redblue_operation operation) {
  redblue_problem p;
  redblue_problem_init(&p);
  p.operation = operation;
  p.heads = kHeads;
  p.n_q = kQueries, p.n_k = kKeys;
  p.d = kD, p.d_v = kDv;
  p.causal = 1;
  return p;
}

static redblue_plan_options options_of(int64_t words) {
  redblue_plan_options options;
  redblue_plan_options_init(&options);
  options.fast_memory_words = words;
  return options;
}

static redblue_plan* plan_for(const redblue_problem* p, int64_t words, const char* schedule) {
  redblue_plan_options options = options_of(words);
  options.schedule = schedule;
  redblue_plan* plan = NULL;
  CHECK(redblue_plan_create(p, &options, &plan) == REDBLUE_OK);
  return plan;
}

static redblue_plan* plan_of(redblue_operation operation) {
  const redblue_problem p = problem_of(operation);
  return plan_for(&p, 100, NULL);
}

static redblue_plan_info info_of(const redblue_plan* plan) {
  redblue_plan_info info;
  redblue_plan_info_init(&info);
  CHECK(redblue_plan_describe(plan, &info) == REDBLUE_OK);
  return info;
}

static redblue_forward_tensors forward_tensors(void) {
  redblue_forward_tensors t;
  redblue_forward_tensors_init(&t);
  t.q.data = q, t.k.data = k, t.v.data = v, t.o.data = o, t.lse.data = lse;
  return t;
}

static redblue_backward_tensors backward_tensors(void) {
  redblue_backward_tensors t;
  redblue_backward_tensors_init(&t);
  t.q.data = q, t.k.data = k, t.v.data = v, t.o.data = o, t.lse.data = lse, t.d_o.data = d_o;
  t.dq.data = dq, t.dk.data = dk, t.dv.data = dv;
  return t;
}

/* Has this build approximations? (-DREDBLUE_METHODS=OFF leaves them out.) */
static int has_approximations(void) {
  redblue_certificate c;
  redblue_certificate_init(&c);
  return redblue_certify(NULL, NULL, REDBLUE_F32, &c) != REDBLUE_UNSUPPORTED;
}

static void test_results(void) {
  redblue_plan *forward = plan_of(REDBLUE_FORWARD), *backward = plan_of(REDBLUE_BACKWARD);
  const redblue_forward_tensors f = forward_tensors();
  const redblue_backward_tensors b = backward_tensors();
  redblue_run_options run;
  redblue_run_options_init(&run);

  CHECK(redblue_forward(forward, &f, NULL) == REDBLUE_OK);
  CHECK(is_close(o, o_is, kO) && is_close(lse, lse_is, kHeads * kQueries));
  CHECK(redblue_backward(backward, &b, NULL) == REDBLUE_OK);
  CHECK(is_close(dq, dq_is, kQ) && is_close(dk, dk_is, kK) && is_close(dv, dv_is, kV));

  memset(o, 0, sizeof o);
  CHECK(redblue_forward_workspace(forward, &f, NULL, &run.workspace_size) == REDBLUE_OK && run.workspace_size > 0);
  run.workspace = malloc(run.workspace_size);
  CHECK(redblue_forward(forward, &f, &run) == REDBLUE_OK);
  CHECK(is_close(o, o_is, kO));
  --run.workspace_size;
  REFUSED(redblue_forward(forward, &f, &run), REDBLUE_NOT_ENOUGH_MEMORY, "the memory given is ");
  free(run.workspace);
  run.workspace = v, run.workspace_size = sizeof v;
  REFUSED(redblue_forward(forward, &f, &run), REDBLUE_INVALID_ARGUMENT, "the workspace overlaps v in memory");

  size_t contiguous = 0, bytes = 0;
  CHECK(redblue_backward_workspace(backward, NULL, NULL, &contiguous) == REDBLUE_OK);
  CHECK(redblue_backward_workspace(backward, &b, NULL, &bytes) == REDBLUE_OK);
  CHECK(contiguous == bytes);

  const redblue_plan_info info = info_of(backward);
  CHECK(strlen(info.schedule) > 0 && strlen(info.reason) > 0 && info.forward_schedule == NULL);
  CHECK(info.words_read + info.words_written >= info.bound_words && info.ratio >= 1);
  CHECK(info.footprint_words <= 100);
  redblue_plan_destroy(forward), redblue_plan_destroy(backward);
}

/* Packed sequences of 2 and 3 queries, of which 3 and 1 keys are in use: the first one is as it is alone. */
static void test_sequences(void) {
  const int64_t ends_q[] = {0, 2, 5}, ends_k[] = {0, 4, 7}, used[] = {3, 1};
  redblue_problem all = problem_of(REDBLUE_FORWARD), alone = problem_of(REDBLUE_FORWARD);
  all.sequences = 2, all.cu_seqlens_q = ends_q, all.cu_seqlens_k = ends_k, all.seqused_k = used;
  all.heads = alone.heads = 1;
  alone.n_q = 2, alone.n_k = 3;
  const redblue_forward_tensors f = forward_tensors();
  double first[2 * kDv];
  redblue_plan* plan = plan_for(&alone, 100, NULL);
  CHECK(redblue_forward(plan, &f, NULL) == REDBLUE_OK);
  for (int i = 0; i < 2 * kDv; ++i) first[i] = (double)o[i];
  redblue_plan_destroy(plan);
  plan = plan_for(&all, 100, NULL);
  CHECK(redblue_forward(plan, &f, NULL) == REDBLUE_OK);
  CHECK(is_close(o, first, 2 * kDv));
  redblue_plan_destroy(plan);
  /* With three of the keys in use, its offset is that of the last query. */
  all = alone, all.n_k = kKeys, all.seqused_k = used;
  memset(o, 0, sizeof o);
  plan = plan_for(&all, 100, NULL);
  CHECK(redblue_forward(plan, &f, NULL) == REDBLUE_OK);
  CHECK(is_close(o, first, 2 * kDv));
  redblue_plan_destroy(plan);
}

/* Three sequences of unlike lengths, two of which have tiles of their own. */
static void test_own_tilings(void) {
  const int64_t ends[] = {0, 100, 131, 190};
  redblue_problem p = problem_of(REDBLUE_FORWARD);
  p.batch = p.heads = p.kv_heads = 1;
  p.causal = 0;
  p.n_q = p.n_k = 190, p.d = p.d_v = 16;
  p.sequences = 3, p.cu_seqlens_q = p.cu_seqlens_k = ends;
  redblue_plan* plan = plan_for(&p, 300, "score_tiles");
  redblue_own_tiling own;
  redblue_own_tiling_init(&own);
  CHECK(strcmp(info_of(plan).tiling, "a=10 b=25") == 0);
  CHECK(redblue_plan_own_tilings(plan) == 2);
  CHECK(redblue_plan_own_tiling(plan, 0, &own) == REDBLUE_OK && strcmp(own.tiling, "a=8 b=31") == 0);
  CHECK(own.rows == 31 && own.keys == 31 && own.lo == INT64_MIN && own.hi == INT64_MAX && own.prefix == 0);
  CHECK(redblue_plan_own_tiling(plan, 1, &own) == REDBLUE_OK && own.rows == 59);
  REFUSED(redblue_plan_own_tiling(plan, 2, &own), REDBLUE_INVALID_ARGUMENT, "index = 2: 2 shapes of sequences");
  redblue_plan_destroy(plan);
}

static redblue_plan* plan_under(redblue_operation operation, const redblue_pattern* const* patterns, int64_t n,
                                redblue_pattern_order order) {
  redblue_problem p = problem_of(operation);
  p.causal = 0;
  p.patterns = patterns, p.n_patterns = n, p.order = order;
  return plan_for(&p, 60, NULL);
}

/* Forward and backward under these patterns, in every order, are as the dense loops have it. The patterns are gone
 * before anything runs. */
static void check_patterns(redblue_pattern** patterns, int64_t n, Sees sees) {
  enum { kOrders = 4 };
  const redblue_pattern* given[kHeads];
  redblue_plan *forward[kOrders], *backward[kOrders];
  for (int64_t i = 0; i < n; ++i) given[i] = patterns[i];
  for (int order = 0; order < kOrders; ++order) {
    forward[order] = plan_under(REDBLUE_FORWARD, given, n, order);
    backward[order] = plan_under(REDBLUE_BACKWARD, given, n, order);
  }
  for (int64_t i = 0; i < n; ++i) redblue_pattern_destroy(patterns[i]);
  plain(sees);
  const redblue_forward_tensors f = forward_tensors();
  const redblue_backward_tensors b = backward_tensors();
  for (int order = 0; order < kOrders; ++order) {
    memset(o, 1, sizeof o), memset(lse, 1, sizeof lse);
    memset(dq, 1, sizeof dq), memset(dk, 1, sizeof dk), memset(dv, 1, sizeof dv);
    CHECK(redblue_forward(forward[order], &f, NULL) == REDBLUE_OK);
    CHECK(is_close(o, o_is, kO) && is_close(lse, lse_is, kHeads * kQueries));
    CHECK(redblue_backward(backward[order], &b, NULL) == REDBLUE_OK);
    CHECK(is_close(dq, dq_is, kQ) && is_close(dk, dk_is, kK) && is_close(dv, dv_is, kV));
    redblue_plan_destroy(forward[order]), redblue_plan_destroy(backward[order]);
  }
  plain(sees_causal); /* as the other tests have it */
}

/* Compressed sparse rows of 5 queries and 7 keys; query 2 sees nothing. */
static const int64_t kIndptr[] = {0, 3, 5, 5, 9, 11}, kIndices[] = {0, 3, 6, 1, 2, 0, 1, 4, 6, 2, 5};
static int sees_csr(int h, int i, int j) {
  (void)h;
  for (int64_t at = kIndptr[i]; at < kIndptr[i + 1]; ++at)
    if (kIndices[at] == j) return 1;
  return 0;
}
static int sees_mask(int h, int i, int j) { return (void)h, (3 * i + j) % 4 == 0 || j == 5; }
static int sees_either(int h, int i, int j) { return h == 0 ? sees_csr(h, i, j) : sees_mask(h, i, j); }
/* Blocks of 2 queries and 3 keys: the last ones are of 1. */
static const uint8_t kBlocks[] = {1, 0, 1, 0, 1, 0, 1, 1, 0};
static int sees_blocks(int h, int i, int j) { return (void)h, kBlocks[i / 2 * 3 + j / 3]; }
static int sees_longformer(int h, int i, int j) {
  const int distance = j - place(i);
  return (void)h, j < 1 || (distance % 2 == 0 && -4 <= distance && distance <= 2);
}
static int sees_first_queries(int h, int i, int j) { return (void)h, i < 2 || j < 2 || j == i; }
static int sees_big_bird(int h, int i, int j) { return (void)h, j < 2 || j / 2 == place(i) / 2; }
static int sees_strided(int h, int i, int j) {
  const int back = place(i) - j;
  return (void)h, back >= 0 && (back < 3 || back % 3 == 0);
}
static int sees_fixed(int h, int i, int j) { return (void)h, j <= place(i) && (j / 3 == place(i) / 3 || j % 3 == 2); }

static int sees_both(int h, int i, int j) { return sees_strided(h, i, j) && sees_blocks(h, i, j); }
static int sees_one(int h, int i, int j) { return sees_strided(h, i, j) || sees_blocks(h, i, j); }

static void test_patterns(void) {
  redblue_pattern *pattern[kHeads], *strided, *blocks;
  uint8_t seen[kQueries * kKeys];
  for (int i = 0; i < kQueries; ++i)
    for (int j = 0; j < kKeys; ++j) seen[i * kKeys + j] = (uint8_t)(2 * sees_mask(0, i, j));
#define UNDER(maker, sees)      \
  CHECK((maker) == REDBLUE_OK); \
  check_patterns(pattern, 1, (sees))
  UNDER(redblue_pattern_csr(kQueries, kKeys, kIndptr, kIndices, pattern), sees_csr);
  UNDER(redblue_pattern_mask(kQueries, kKeys, seen, pattern), sees_mask);
  UNDER(redblue_pattern_blocks(kQueries, kKeys, 2, 3, kBlocks, pattern), sees_blocks);
  UNDER(redblue_pattern_longformer(kQueries, kKeys, kKeys - kQueries, 2, 1, 1, 2, pattern), sees_longformer);
  UNDER(redblue_pattern_longformer(kQueries, kKeys, 0, 0, 0, 2, 1, pattern), sees_first_queries);
  UNDER(redblue_pattern_big_bird(kQueries, kKeys, kKeys - kQueries, 2, 0, 1, 0, 0, pattern), sees_big_bird);
  UNDER(redblue_pattern_strided(kQueries, kKeys, kKeys - kQueries, 3, pattern), sees_strided);
  UNDER(redblue_pattern_fixed(kQueries, kKeys, kKeys - kQueries, 3, 1, pattern), sees_fixed);
  CHECK(redblue_pattern_strided(kQueries, kKeys, kKeys - kQueries, 3, &strided) == REDBLUE_OK);
  CHECK(redblue_pattern_blocks(kQueries, kKeys, 2, 3, kBlocks, &blocks) == REDBLUE_OK);
  UNDER(redblue_pattern_intersected(strided, blocks, pattern), sees_both);
  UNDER(redblue_pattern_united(strided, blocks, pattern), sees_one);
  redblue_pattern_destroy(strided);
  redblue_pattern_destroy(blocks);
  /* One for each head. */
  CHECK(redblue_pattern_csr(kQueries, kKeys, kIndptr, kIndices, &pattern[0]) == REDBLUE_OK);
  CHECK(redblue_pattern_mask(kQueries, kKeys, seen, &pattern[1]) == REDBLUE_OK);
  check_patterns(pattern, kHeads, sees_either);
}

/* Random blocks depend on the seed, and their number is as given. */
static void test_big_bird_seed(void) {
  static float first[kO];
  const redblue_forward_tensors f = forward_tensors();
  for (int64_t seed = 0; seed < 3; ++seed) {
    redblue_pattern* pattern = NULL;
    CHECK(redblue_pattern_big_bird(kQueries, kKeys, kKeys - kQueries, 1, 0, 0, 2, seed % 2, &pattern) == REDBLUE_OK);
    redblue_plan* plan =
        plan_under(REDBLUE_FORWARD, (const redblue_pattern* const*)&pattern, 1, REDBLUE_ORDER_AUTOMATIC);
    CHECK(redblue_forward(plan, &f, NULL) == REDBLUE_OK);
    if (seed == 0) memcpy(first, o, sizeof o);
    CHECK((memcmp(first, o, sizeof o) == 0) == (seed % 2 == 0));
    redblue_plan_destroy(plan);
    redblue_pattern_destroy(pattern);
  }
}

/* What a plan says of the index of a pattern: once for each of 2 batches of 3 heads. */
static void test_index_words(void) {
  redblue_pattern* pattern = NULL;
  CHECK(redblue_pattern_csr(kQueries, kKeys, kIndptr, kIndices, &pattern) == REDBLUE_OK);
  const redblue_pattern* given[] = {pattern};
  redblue_problem p;
  redblue_problem_init(&p);
  p.batch = 2, p.heads = p.kv_heads = 3;
  p.n_q = kQueries, p.n_k = kKeys, p.d = p.d_v = 2;
  p.patterns = given, p.n_patterns = 1, p.order = REDBLUE_ORDER_NATURAL;
  redblue_plan* plan = plan_for(&p, 100, "flash");
  const redblue_plan_info info = info_of(plan);
  /* One block of 4 queries that see a key: 1, 2 for each of the 7 keys, and 11 pairs; two queries see key 0. */
  CHECK(info.index_words_read == 6 * (1 + 2 * 7 + 11) && info.index_words_resident == 2);
  /* A program from before these fields. */
  redblue_plan_info old;
  redblue_plan_info_init(&old);
  old.struct_size = offsetof(redblue_plan_info, index_words_read);
  old.index_words_read = old.index_words_resident = 77;
  CHECK(redblue_plan_describe(plan, &old) == REDBLUE_OK);
  CHECK(old.words_read == info.words_read && old.footprint_words == info.footprint_words);
  CHECK(old.index_words_read == 77 && old.index_words_resident == 77);
  redblue_plan_destroy(plan);
  redblue_pattern_destroy(pattern);
}

static void test_wrong_patterns(void) {
  redblue_pattern* pattern = (redblue_pattern*)&failures;
#define WRONG_PATTERN(text, call)                \
  REFUSED(call, REDBLUE_INVALID_ARGUMENT, text); \
  CHECK(pattern == NULL)
#define WRONG_CSR(text, n_keys, indptr, indices) \
  WRONG_PATTERN(text, redblue_pattern_csr(2, n_keys, indptr, indices, &pattern))
  const int64_t ends[] = {0, 2, 3}, leaps[] = {0, 9, 3}, negative[] = {0, 2, -1}, nothing[] = {0, 0, 0};
  const int64_t keys[] = {1, 4, 0};
  WRONG_CSR("indptr is NULL", 5, NULL, keys);
  WRONG_CSR("indices is NULL", 5, ends, NULL);
  WRONG_CSR("indptr goes from 0 to 9 at query 0: it never falls, and stays within the 3 indices", 5, leaps, keys);
  WRONG_CSR("indptr ends with -1", 5, negative, keys);
  WRONG_CSR("query 0 sees key 4: keys are 0 to 3", 4, ends, keys);
  WRONG_CSR("n_k = 0", 0, ends, keys);
  REFUSED(redblue_pattern_csr(2, 5, ends, keys, NULL), REDBLUE_INVALID_ARGUMENT, "pattern is NULL");
  WRONG_PATTERN("n_q = 9223372036854775807", redblue_pattern_mask(INT64_MAX, 5, kBlocks, &pattern));
  WRONG_PATTERN("seen is NULL", redblue_pattern_mask(2, 5, NULL, &pattern));
  WRONG_PATTERN("rows = 0", redblue_pattern_blocks(2, 5, 0, 1, kBlocks, &pattern));
  WRONG_PATTERN("cols = -3", redblue_pattern_blocks(2, 5, 1, -3, kBlocks, &pattern));
  WRONG_PATTERN("rows = 9223372036854775807", redblue_pattern_blocks(2, 5, INT64_MAX, 1, kBlocks, &pattern));
  WRONG_PATTERN("offset = -9223372036854775808", redblue_pattern_longformer(2, 5, INT64_MIN, 1, 1, 0, 1, &pattern));
  WRONG_PATTERN("left = -2", redblue_pattern_longformer(2, 5, 3, -2, 1, 0, 1, &pattern));
  WRONG_PATTERN("block = 0", redblue_pattern_big_bird(2, 5, 3, 0, 1, 1, 1, 0, &pattern));
  WRONG_PATTERN("seed = -3 is out of range", redblue_pattern_big_bird(2, 5, 3, 1, 1, 1, 1, -3, &pattern));
  WRONG_PATTERN("random blocks = -1", redblue_pattern_big_bird(2, 5, 3, 1, 1, 1, -1, 0, &pattern));
  WRONG_PATTERN("stride = 0", redblue_pattern_strided(2, 5, 3, 0, &pattern));
  WRONG_PATTERN("summary = 4 keys of each block of 3", redblue_pattern_fixed(2, 5, 3, 3, 4, &pattern));
  redblue_pattern_destroy(NULL);

  /* A pattern that shows nothing needs no indices, and another problem than its own refuses it. */
  CHECK(redblue_pattern_csr(2, 5, nothing, NULL, &pattern) == REDBLUE_OK);
  const redblue_pattern *three[] = {pattern, pattern, pattern}, *none[] = {NULL};
  redblue_pattern *of_one_query = NULL, *both = NULL;
  CHECK(redblue_pattern_strided(1, 5, 3, 2, &of_one_query) == REDBLUE_OK);
  REFUSED(redblue_pattern_intersected(pattern, of_one_query, &both), REDBLUE_INVALID_ARGUMENT,
          "a is between 2 queries and 5 keys, b between 1 and 5");
  REFUSED(redblue_pattern_united(pattern, NULL, &both), REDBLUE_INVALID_ARGUMENT, "b is NULL");
  CHECK(both == NULL);
  redblue_pattern_destroy(of_one_query);
  redblue_problem p = problem_of(REDBLUE_FORWARD);
  const redblue_plan_options options = options_of(100);
  redblue_plan* plan = NULL;
#define WRONG_USE(change, text)                                                      \
  p = problem_of(REDBLUE_FORWARD);                                                   \
  p.n_q = 2, p.n_k = 5, p.patterns = three, p.n_patterns = 1;                        \
  change;                                                                            \
  REFUSED(redblue_plan_create(&p, &options, &plan), REDBLUE_INVALID_ARGUMENT, text); \
  CHECK(plan == NULL)
  WRONG_USE(p.n_patterns = 0, "n_patterns = 0: give their number, with patterns");
  WRONG_USE(p.n_patterns = -1, "n_patterns = -1");
  WRONG_USE(p.n_patterns = 3, "3 patterns for batch 1 and 2 heads");
  WRONG_USE(p.patterns = NULL, "n_patterns = 1: patterns is NULL");
  WRONG_USE(p.patterns = none, "patterns[0] is NULL");
  WRONG_USE(p.n_k = 6, "pattern 0 is of 5 keys and the problem has n_k = 6");
  WRONG_USE(p.n_q = 3, "pattern 0 is of 2 queries and the problem has n_q = 3");
  WRONG_USE(p.order = 5, "order = 5 is no redblue_pattern_order");
  WRONG_USE(p.order = -1, "order = -1 is no redblue_pattern_order");
  WRONG_USE((p.patterns = NULL, p.n_patterns = 0, p.order = REDBLUE_ORDER_RCM),
            "order rcm: it is the order of a pattern");
  redblue_pattern_destroy(pattern);
}

/* A dilated window of a problem is that of a pattern; queries and keys lie in another order only inside a run. */
static void test_dilation(void) {
  redblue_pattern* pattern = NULL;
  CHECK(redblue_pattern_longformer(kQueries, kKeys, kKeys - kQueries, 1, 0, 0, 2, &pattern) == REDBLUE_OK);
  redblue_plan* plans[2] = {
      plan_under(REDBLUE_FORWARD, (const redblue_pattern* const*)&pattern, 1, REDBLUE_ORDER_AUTOMATIC), NULL};
  redblue_problem p = problem_of(REDBLUE_FORWARD);
  p.causal = 0;
  p.has_window_left = p.has_window_right = 1, p.window_left = 1, p.dilation = 2;
  plans[1] = plan_for(&p, 60, NULL);
  static float results[2][kO + kHeads * kQueries];
  for (int i = 0; i < 2; ++i) {
    redblue_forward_tensors f = forward_tensors();
    f.o.data = results[i], f.lse.data = results[i] + kO;
    CHECK(redblue_forward(plans[i], &f, NULL) == REDBLUE_OK);
    redblue_plan_destroy(plans[i]);
  }
  for (int i = 0; i < kO + kHeads * kQueries; ++i) {
    const float a = results[0][i], b = results[1][i];
    CHECK(fabsf(a - b) < 2e-6f || (isinf(a) && isinf(b)));
  }
  redblue_pattern_destroy(pattern);
}

/* A program from before a field of redblue_problem: its struct ends there, and what follows in memory is not read. */
static void test_earlier_problems(void) {
  const size_t sizes[] = {offsetof(redblue_problem, window_left),        offsetof(redblue_problem, softcap),
                          offsetof(redblue_problem, sequences),          offsetof(redblue_problem, patterns),
                          offsetof(redblue_problem, approximate_degree), offsetof(redblue_problem, dilation)};
  const redblue_forward_tensors f = forward_tensors();
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    redblue_problem p = problem_of(REDBLUE_FORWARD);
    memset((char*)&p + sizes[i], 0x55, sizeof p - sizes[i]);
    p.struct_size = sizes[i];
    redblue_plan* plan = plan_for(&p, 100, NULL);
    memset(o, 0, sizeof o);
    CHECK(redblue_forward(plan, &f, NULL) == REDBLUE_OK && is_close(o, o_is, kO));
    redblue_plan_destroy(plan);
  }
}

/* Fast memory in bytes: bf16 operands beside f32 accumulators. */
static void test_bytes(void) {
  redblue_problem p;
  redblue_problem_init(&p);
  p.n_q = p.n_k = 8192;
  p.d = 128;
  redblue_plan_options options;
  redblue_plan_options_init(&options);
  options.fast_memory_bytes = 65536;
  options.dtype = REDBLUE_BF16;
  options.multiple_of_queries = options.multiple_of_keys = 16;
  options.schedule = "flash_tiled";
  redblue_plan* plan = NULL;
  CHECK(redblue_plan_create(&p, &options, &plan) == REDBLUE_OK);
  redblue_plan_info info = info_of(plan);
  CHECK(strcmp(info.tiling, "Br=64 Bc=16") == 0);
  CHECK(info.footprint_bytes == 57856 && info.multiple_of_keys == 16 && info.multiple_of_features == 1);
  CHECK(info.bytes_moved == 2 * (info.words_read + 8192 * 128) + 4 * 8192); /* O is written once; lse is f32 */
  CHECK(info.reserve_words == 0 && info.double_buffer == 0);
  int64_t Br = 0;
  CHECK(redblue_plan_tile(plan, "Br", &Br) == REDBLUE_OK && Br == 64);
  REFUSED(redblue_plan_tile(plan, "br", &Br), REDBLUE_INVALID_ARGUMENT, "flash_tiled has no tile 'br': Br=64 Bc=16");
  REFUSED(redblue_plan_tile(plan, "Br", NULL), REDBLUE_INVALID_ARGUMENT, "size is NULL");
  CHECK(redblue_plan_own_tilings(plan) == 0 && redblue_plan_own_tilings(NULL) == 0);
  redblue_own_tiling own;
  redblue_own_tiling_init(&own);
  REFUSED(redblue_plan_own_tiling(plan, 0, &own), REDBLUE_INVALID_ARGUMENT,
          "index = 0: 0 shapes of sequences have tiles of their own, from 0 on");
  redblue_plan_destroy(plan);

  options.double_buffer = 1; /* a second block of keys or values: fewer queries */
  options.reserve_words = 100;
  CHECK(redblue_plan_create(&p, &options, &plan) == REDBLUE_OK);
  info = info_of(plan);
  CHECK(info.double_buffer == 1 && info.reserve_words == 100 && info.footprint_bytes <= 65536 - 4096 - 400);
  redblue_plan_destroy(plan);

  /* A program from before these fields: its structs end where they begin. */
  redblue_plan_options old;
  redblue_plan_options_init(&old);
  memset((char*)&old + offsetof(redblue_plan_options, fast_memory_bytes), 0x55,
         sizeof old - offsetof(redblue_plan_options, fast_memory_bytes));
  old.struct_size = offsetof(redblue_plan_options, fast_memory_bytes);
  old.fast_memory_words = 1000;
  CHECK(redblue_plan_create(&p, &old, &plan) == REDBLUE_OK);
  redblue_plan_info first;
  redblue_plan_info_init(&first);
  first.struct_size = offsetof(redblue_plan_info, tiling);
  first.footprint_bytes = 77;
  CHECK(redblue_plan_describe(plan, &first) == REDBLUE_OK);
  CHECK(first.footprint_words <= 1000 && first.ratio >= 1 && first.footprint_bytes == 77);
  redblue_plan_destroy(plan);

  options.fast_memory_words = 1000;
  REFUSED(redblue_plan_create(&p, &options, &plan), REDBLUE_INVALID_ARGUMENT, "give one of them");
  options.fast_memory_words = 0;
  options.multiple_of_keys = 0;
  REFUSED(redblue_plan_create(&p, &options, &plan), REDBLUE_INVALID_ARGUMENT, "multiple of keys = 0");
}

/* Counts beyond 63 bits are INT64_MAX, and the others stay exact. */
static void test_huge_problem(void) {
  redblue_problem p;
  redblue_problem_init(&p);
  p.n_q = p.n_k = (int64_t)1 << 28;
  p.d = 64;
  redblue_plan* plan = plan_for(&p, 1 << 20, NULL);
  redblue_plan_info info = info_of(plan);
  CHECK(info.flops == INT64_MAX); /* 4 n^2 d = 2^64 */
  CHECK(info.words_read > 0 && info.words_read < INT64_MAX && info.words_written >= p.n_q * p.d);
  CHECK(info.footprint_words <= 1 << 20 && info.bound_words < INT64_MAX);
  CHECK(info.schedule != NULL && info.ratio >= 1);
  redblue_plan_destroy(plan);

  p.heads = (int64_t)1 << 20;
  plan = plan_for(&p, 1 << 20, NULL);
  const double ratio = info.ratio;
  info = info_of(plan);
  CHECK(info.words_read == INT64_MAX && info.bound_words == INT64_MAX && info.flops == INT64_MAX);
  CHECK(info.words_written >= p.heads * p.n_q * p.d && info.words_written < INT64_MAX);
  CHECK(fabs(info.ratio - ratio) < 1e-9 * ratio);
  redblue_plan_destroy(plan);
}

/* A size of workspace that reaches beyond the end of the address space. */
static void test_workspace_without_end(void) {
  redblue_plan* plan = plan_of(REDBLUE_FORWARD);
  static float memory[1 << 16];
  redblue_forward_tensors t = forward_tensors();
  redblue_run_options run;
  redblue_run_options_init(&run);
  run.workspace_size = SIZE_MAX;
  run.workspace = q;
  REFUSED(redblue_forward(plan, &t, &run), REDBLUE_INVALID_ARGUMENT, "the workspace overlaps q in memory");
  run.workspace = q + 2;
  REFUSED(redblue_forward(plan, &t, &run), REDBLUE_INVALID_ARGUMENT, "the workspace overlaps q in memory");

  /* Tensors below the workspace: nothing overlaps, and what is needed is there. */
  float* at = memory;
  t.q.data = memcpy(at, q, sizeof q), at += kQ;
  t.k.data = memcpy(at, k, sizeof k), at += kK;
  t.v.data = memcpy(at, v, sizeof v), at += kV;
  t.o.data = at, at += kO;
  t.lse.data = NULL;
  run.workspace = at;
  size_t needed = 0;
  CHECK(redblue_forward_workspace(plan, &t, NULL, &needed) == REDBLUE_OK);
  CHECK(needed <= sizeof memory - (size_t)((char*)at - (char*)memory));
  CHECK(redblue_forward(plan, &t, &run) == REDBLUE_OK);
  CHECK(is_close(t.o.data, o_is, kO));
  redblue_plan_destroy(plan);
}

static void test_wrong_problems(void) {
  const redblue_problem right = problem_of(REDBLUE_FORWARD);
  const redblue_plan_options options = options_of(100);
  redblue_plan* plan = (redblue_plan*)&failures;
  REFUSED(redblue_plan_create(NULL, &options, &plan), REDBLUE_INVALID_ARGUMENT, "redblue_problem is NULL");
  CHECK(plan == NULL);
  REFUSED(redblue_plan_create(&right, NULL, &plan), REDBLUE_INVALID_ARGUMENT, "redblue_plan_options is NULL");
  REFUSED(redblue_plan_create(&right, &options, NULL), REDBLUE_INVALID_ARGUMENT, "plan is NULL");

  redblue_problem p = right;
#define WRONG_PROBLEM(change, status, text)                        \
  p = right;                                                       \
  change;                                                          \
  REFUSED(redblue_plan_create(&p, &options, &plan), status, text); \
  CHECK(plan == NULL)
  WRONG_PROBLEM(p.struct_size = 8, REDBLUE_INVALID_ARGUMENT, "struct_size of redblue_problem is 8");
  WRONG_PROBLEM(p.struct_size += 8, REDBLUE_INVALID_ARGUMENT, "struct_size");
  WRONG_PROBLEM(p.operation = 7, REDBLUE_INVALID_ARGUMENT, "operation = 7");
  WRONG_PROBLEM(p.n_q = 0, REDBLUE_INVALID_ARGUMENT, "n_q = 0");
  WRONG_PROBLEM(p.d = -4, REDBLUE_INVALID_ARGUMENT, "d = -4");
  WRONG_PROBLEM(p.batch = INT64_MAX, REDBLUE_INVALID_ARGUMENT, "batch = 9223372036854775807");
  WRONG_PROBLEM(p.dilation = -2, REDBLUE_INVALID_ARGUMENT, "dilation = -2");
  WRONG_PROBLEM((p.dilation = 2, p.alibi = 1), REDBLUE_INVALID_ARGUMENT, "ALiBi");
  WRONG_PROBLEM(p.kv_heads = 3, REDBLUE_INVALID_ARGUMENT, "kv_heads = 3");
  WRONG_PROBLEM((p.has_scale = 1, p.scale = NAN), REDBLUE_INVALID_ARGUMENT, "scale = nan");
  WRONG_PROBLEM((p.has_scale = 1, p.scale = INFINITY), REDBLUE_INVALID_ARGUMENT, "scale = inf");
  WRONG_PROBLEM((p.has_scale = 1, p.scale = 1e300), REDBLUE_INVALID_ARGUMENT, "scale = 1e+300 is beyond f32");
  WRONG_PROBLEM((p.has_causal_offset = 1, p.causal = 0), REDBLUE_INVALID_ARGUMENT, "causal");
  WRONG_PROBLEM((p.has_bias = 1, p.bias_shape[0] = 7), REDBLUE_INVALID_ARGUMENT, "does not broadcast");
  WRONG_PROBLEM(p.order = REDBLUE_ORDER_RCM, REDBLUE_INVALID_ARGUMENT, "order rcm: it is the order of a pattern's");
  WRONG_PROBLEM(p.dropout = 1.5, REDBLUE_INVALID_ARGUMENT, "dropout = 1.5");
  WRONG_PROBLEM((p.has_window_left = 1, p.window_left = -1), REDBLUE_INVALID_ARGUMENT, "window_left = -1");
  WRONG_PROBLEM((p.has_window_right = 1, p.window_right = -7), REDBLUE_INVALID_ARGUMENT, "window_right = -7");
  const int64_t falls[] = {0, 4, 2};
  WRONG_PROBLEM((p.sequences = 2, p.cu_seqlens_q = p.cu_seqlens_k = falls), REDBLUE_INVALID_ARGUMENT, "falls from 4");
  WRONG_PROBLEM(p.sequences = 2, REDBLUE_INVALID_ARGUMENT, "sequences = 2: cu_seqlens_q and cu_seqlens_k are NULL");
  WRONG_PROBLEM(p.cu_seqlens_q = falls, REDBLUE_INVALID_ARGUMENT, "sequences = 0: give their number");
  WRONG_PROBLEM(p.approximate_range = 2, REDBLUE_INVALID_ARGUMENT, "approximate_degree = 0: give a degree");
  if (has_approximations()) {
    WRONG_PROBLEM(p.approximate_degree = 2, REDBLUE_INVALID_ARGUMENT, "range = 0 of a polynomial");
    WRONG_PROBLEM((p.approximate_degree = -1, p.approximate_range = 1), REDBLUE_INVALID_ARGUMENT, "degree = -1");
    WRONG_PROBLEM((p.approximate_degree = 1, p.approximate_range = 9), REDBLUE_INVALID_ARGUMENT,
                  "give a higher degree");
  } else {
    WRONG_PROBLEM(p.approximate = "linear", REDBLUE_UNSUPPORTED, "no approximations");
  }
  WRONG_PROBLEM((p.causal = 1, p.prefix = 1000000), REDBLUE_INVALID_ARGUMENT, "prefix = 1000000");

  redblue_plan_options x = options;
#define WRONG_OPTIONS(change, status, text)                      \
  x = options;                                                   \
  change;                                                        \
  REFUSED(redblue_plan_create(&right, &x, &plan), status, text); \
  CHECK(plan == NULL)
  WRONG_OPTIONS(x.struct_size = 0, REDBLUE_INVALID_ARGUMENT, "struct_size of redblue_plan_options is 0");
  WRONG_OPTIONS((x.fast_memory_words = 0, x.objective = REDBLUE_MINIMISE_WORDS), REDBLUE_INVALID_ARGUMENT,
                "needs fast_memory_words or fast_memory_bytes");
  WRONG_OPTIONS(x.fast_memory_words = 2, REDBLUE_FAST_MEMORY_TOO_SMALL, "the smallest that works is");
  WRONG_OPTIONS(x.schedule = "no_such", REDBLUE_INVALID_ARGUMENT,
                "no schedule of operation forward is called 'no_such'");
  WRONG_OPTIONS(x.schedule = "saha_ye", REDBLUE_UNSUPPORTED, "knows no mask");
  WRONG_OPTIONS(x.objective = 9, REDBLUE_INVALID_ARGUMENT, "objective = 9");
  WRONG_OPTIONS(x.compute = REDBLUE_F16, REDBLUE_UNSUPPORTED, "arithmetic is f32, f64");
  WRONG_OPTIONS(x.compute = REDBLUE_BF16, REDBLUE_UNSUPPORTED, "q must be bf16");
  WRONG_OPTIONS(x.hardware_file = "h.json", REDBLUE_INVALID_ARGUMENT, "'h.json' is for REDBLUE_MINIMISE_TIME");
  WRONG_OPTIONS((x.hardware_file = "/nowhere/h.json", x.objective = REDBLUE_MINIMISE_TIME), REDBLUE_INVALID_ARGUMENT,
                "/nowhere/h.json");
  WRONG_OPTIONS((x.hardware_file = "/dev/null", x.objective = REDBLUE_MINIMISE_TIME), REDBLUE_INVALID_ARGUMENT,
                "/dev/null");
  WRONG_OPTIONS(x.dtype = 4, REDBLUE_INVALID_ARGUMENT, "dtype = 4");
  WRONG_OPTIONS(x.threads = -1, REDBLUE_INVALID_ARGUMENT, "threads = -1");
  WRONG_OPTIONS(x.max_workspace = 64, REDBLUE_NOT_ENOUGH_MEMORY, "a cap of 64 bytes is too small");

  p = problem_of(REDBLUE_BACKWARD);
  x = options;
  x.compute = x.dtype = REDBLUE_BF16;
  p.softcap = 9;
  REFUSED(redblue_plan_create(&p, &x, &plan), REDBLUE_UNSUPPORTED, "compute type bf16 for backward");
  CHECK(redblue_plan_create(&right, &x, &plan) == REDBLUE_OK);
  redblue_plan_destroy(plan);
}

static void test_wrong_runs(void) {
  redblue_plan *forward = plan_of(REDBLUE_FORWARD), *backward = plan_of(REDBLUE_BACKWARD);
  const redblue_forward_tensors right = forward_tensors();
  const redblue_backward_tensors b = backward_tensors();
  redblue_run_options run;
  redblue_run_options_init(&run);
  size_t bytes = 1;
  REFUSED(redblue_forward(NULL, &right, NULL), REDBLUE_INVALID_ARGUMENT, "plan is NULL");
  REFUSED(redblue_forward(forward, NULL, NULL), REDBLUE_INVALID_ARGUMENT, "redblue_forward_tensors is NULL");
  REFUSED(redblue_forward(backward, &right, NULL), REDBLUE_INVALID_ARGUMENT, "this plan is for backward");
  REFUSED(redblue_backward(forward, &b, NULL), REDBLUE_INVALID_ARGUMENT, "this plan is for forward");
  REFUSED(redblue_forward_workspace(backward, NULL, NULL, &bytes), REDBLUE_INVALID_ARGUMENT, "for backward");
  REFUSED(redblue_forward_workspace(forward, NULL, NULL, NULL), REDBLUE_INVALID_ARGUMENT, "bytes is NULL");
  REFUSED(redblue_plan_describe(forward, NULL), REDBLUE_INVALID_ARGUMENT, "redblue_plan_info is NULL");
  redblue_plan_info info;
  redblue_plan_info_init(&info);
  info.struct_size = 4;
  REFUSED(redblue_plan_describe(forward, &info), REDBLUE_INVALID_ARGUMENT, "struct_size of redblue_plan_info is 4");

  redblue_forward_tensors t = right;
#define WRONG_TENSORS(change, text) \
  t = right;                        \
  change;                           \
  REFUSED(redblue_forward(forward, &t, NULL), REDBLUE_INVALID_ARGUMENT, text)
  WRONG_TENSORS(t.struct_size = 1, "struct_size of redblue_forward_tensors is 1");
  WRONG_TENSORS(t.k.data = NULL, "tensor k has no data");
  WRONG_TENSORS(t.o.data = NULL, "tensor o has no data");
  WRONG_TENSORS(t.v.dtype = -1, "dtype = -1");
  WRONG_TENSORS(t.q.data = (const char*)q + 2, "tensor q is not aligned");
  WRONG_TENSORS((t.q.strides[0] = 1, t.q.strides[2] = INT64_MAX), "of tensor q is too large");
  WRONG_TENSORS((t.q.strides[1] = INT64_MIN), "of tensor q is too large");
  WRONG_TENSORS(t.o.data = q, "output o overlaps q");

  run.workspace_size = 100;
  REFUSED(redblue_forward(forward, &right, &run), REDBLUE_INVALID_ARGUMENT, "workspace is NULL");
  run.workspace_size = 0, run.struct_size = 2;
  REFUSED(redblue_forward(forward, &right, &run), REDBLUE_INVALID_ARGUMENT, "struct_size of redblue_run_options is 2");
  redblue_plan_destroy(forward), redblue_plan_destroy(backward);
  redblue_plan_destroy(NULL);
}

/* The least degree for a tolerance, its certificate, and a run that keeps to it. */
static void test_certificates(void) {
  redblue_problem p = problem_of(REDBLUE_FORWARD);
  redblue_forward_tensors t = forward_tensors();
  t.lse.data = NULL;
  redblue_certificate c;
  redblue_certificate_init(&c);
  if (!has_approximations()) {
    REFUSED(redblue_certify(&p, &t, REDBLUE_F32, &c), REDBLUE_UNSUPPORTED, "no approximations");
    return;
  }
  REFUSED(redblue_certify(&p, &t, REDBLUE_F32, &c), REDBLUE_INVALID_ARGUMENT, "approximate_degree = 0");
  CHECK(redblue_least_degree(&p, &t, REDBLUE_F32, 1e-2, &p.approximate_degree, &p.approximate_range) == REDBLUE_OK);
  CHECK(p.approximate_degree > 0);
  CHECK(redblue_certify(&p, &t, REDBLUE_F32, &c) == REDBLUE_OK);
  CHECK(c.output_error <= 1e-2 && c.weight_error < 1 && c.rounding < 1e-3 && c.range <= p.approximate_range);
  redblue_problem less = p;
  --less.approximate_degree;
  redblue_certificate of_less;
  redblue_certificate_init(&of_less);
  CHECK(redblue_certify(&less, &t, REDBLUE_F32, &of_less) == REDBLUE_OK && of_less.output_error > 1e-2);
  redblue_plan* plan = plan_for(&p, 4000, NULL);
  CHECK(strcmp(info_of(plan).schedule, "polynomial") == 0);
  memset(o, 0, sizeof o);
  CHECK(redblue_forward(plan, &t, NULL) == REDBLUE_OK);
  for (int h = 0; h < kHeads; ++h) {
    double largest = 0, furthest = 0;
    for (int j = 0; j < kKeys * kDv; ++j) largest = fmax(largest, fabs((double)v[h * kKeys * kDv + j]));
    for (int i = h * kQueries * kDv; i < (h + 1) * kQueries * kDv; ++i)
      furthest = fmax(furthest, fabs((double)o[i] - o_is[i]));
    CHECK(furthest > 0 && furthest <= (c.output_error + c.rounding) * largest);
  }
  redblue_plan_destroy(plan);
  redblue_problem other = problem_of(REDBLUE_FORWARD);
  other.approximate = "performer:8";
  REFUSED(redblue_certify(&other, &t, REDBLUE_F32, &c), REDBLUE_UNSUPPORTED, "nothing is proved of Performer");
  other.approximate = "4:1,taylor";
  CHECK(redblue_certify(&other, &t, REDBLUE_F32, &c) == REDBLUE_OK);
  const double by_taylor = c.weight_error;
  other.approximate = "4:1,minimax";
  CHECK(redblue_certify(&other, &t, REDBLUE_F32, &c) == REDBLUE_OK && c.weight_error != by_taylor);
  other.approximate = NULL, other.approximate_degree = 13, other.approximate_range = 1;
  REFUSED(redblue_certify(&other, &t, REDBLUE_F32, &c), REDBLUE_INVALID_ARGUMENT, "give 1 to 12");
  int64_t degree = 1;
  CHECK(redblue_least_degree(&p, &t, REDBLUE_F64, 1e-15, &degree, &c.range) == REDBLUE_OK);
  CHECK(degree == 0 && c.range == 0);

  REFUSED(redblue_least_degree(&p, &t, REDBLUE_F32, 0, &degree, &c.range), REDBLUE_INVALID_ARGUMENT,
          "tolerance = 0: give a number above 0 and below 1");
  REFUSED(redblue_least_degree(&p, &t, REDBLUE_F32, 0.1, NULL, &c.range), REDBLUE_INVALID_ARGUMENT, "degree is NULL");
  REFUSED(redblue_certify(&p, NULL, REDBLUE_F32, &c), REDBLUE_INVALID_ARGUMENT, "redblue_forward_tensors is NULL");
  REFUSED(redblue_certify(&p, &t, REDBLUE_F16, &c), REDBLUE_UNSUPPORTED, "f32 or f64");
  REFUSED(redblue_certify(&p, &t, REDBLUE_F32, NULL), REDBLUE_INVALID_ARGUMENT, "redblue_certificate is NULL");
  t.q.data = NULL;
  REFUSED(redblue_certify(&p, &t, REDBLUE_F32, &c), REDBLUE_INVALID_ARGUMENT, "q has no data");
  t.q.data = q;
  c.struct_size = 8;
  REFUSED(redblue_certify(&p, &t, REDBLUE_F32, &c), REDBLUE_INVALID_ARGUMENT, "struct_size of redblue_certificate");
  p.operation = REDBLUE_BACKWARD;
  c.struct_size = sizeof c;
  REFUSED(redblue_certify(&p, &t, REDBLUE_F32, &c), REDBLUE_UNSUPPORTED, "certificates are of REDBLUE_FORWARD");
}

int inits_set_struct_sizes(void); /* header.cpp */

static void test_inits(void) {
  CHECK(inits_set_struct_sizes());
  redblue_problem p;
  memset(&p, 0x55, sizeof p);
  redblue_problem_init(&p);
  CHECK(p.batch == 1 && p.heads == 1 && p.dilation == 1 && p.kv_heads == 0 && p.n_q == 0 && p.scale == 0 &&
        !p.has_scale);
  CHECK(p.operation == REDBLUE_FORWARD && p.patterns == NULL && p.approximate == NULL && p.seed == 0);
  redblue_plan_options options;
  memset(&options, 0x55, sizeof options);
  redblue_plan_options_init(&options);
  CHECK(options.objective == REDBLUE_MINIMISE_DEFAULT && options.compute == REDBLUE_F32 &&
        options.dtype == REDBLUE_F32);
  CHECK(options.multiple_of_queries == 1 && options.multiple_of_keys == 1 && options.multiple_of_features == 1);
  CHECK(options.schedule == NULL && options.double_buffer == 0 && options.reserve_words == 0);
  redblue_scores_tensors t;
  redblue_scores_tensors_init(&t);
  CHECK(t.s.dtype == REDBLUE_F32 && t.slopes.dtype == REDBLUE_F32 && t.q.data == NULL);

  /* A program from before `dilation`: its struct ends there, and nothing behind it is written. */
  const size_t earlier = offsetof(redblue_problem, dilation);
  p.dilation = 77;
  CHECK(redblue_init(REDBLUE_STRUCT_PROBLEM, &p, earlier) == REDBLUE_OK);
  CHECK(p.struct_size == earlier && p.batch == 1 && p.dilation == 77);
  REFUSED(redblue_init(REDBLUE_STRUCT_PROBLEM, &p, 8), REDBLUE_INVALID_ARGUMENT, "redblue_problem has 8 bytes");
  REFUSED(redblue_init(REDBLUE_STRUCT_PROBLEM, NULL, sizeof p), REDBLUE_INVALID_ARGUMENT, "redblue_problem is NULL");
  REFUSED(redblue_init(77, &p, sizeof p), REDBLUE_INVALID_ARGUMENT, "kind = 77");
}

int main(void) {
  unsigned x = 1;
  float* const inputs[] = {q, k, v, d_o};
  const int words[] = {kQ, kK, kV, kO};
  for (int a = 0; a < 4; ++a)
    for (int i = 0; i < words[a]; ++i) {
      x = x * 1664525u + 1013904223u;
      inputs[a][i] = (float)(x >> 8) / (float)(1u << 23) - 1;
    }
  plain(sees_causal);
  CHECK(strcmp(redblue_last_error(), "") == 0);
  CHECK(strcmp(redblue_version(), REDBLUE_TEST_VERSION) == 0);
  CHECK(strcmp(redblue_status_string(REDBLUE_OK), "ok") == 0);
  CHECK(strcmp(redblue_status_string(77), "no redblue_status") == 0);
  test_inits();
  test_results();
  test_sequences();
  test_own_tilings();
  test_patterns();
  test_big_bird_seed();
  test_index_words();
  test_wrong_patterns();
  test_dilation();
  test_earlier_problems();
  test_certificates();
  test_parts(), test_second();
  test_bytes();
  test_huge_problem();
  test_workspace_without_end();
  test_wrong_problems();
  test_wrong_runs();
  if (failures > 0) fprintf(stderr, "%d failed\n", failures);
  return failures > 0 ? 1 : 0;
}
