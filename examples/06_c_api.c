/* Attention from C: plan once, ask how much memory a run takes, run in memory of your own. */
#include <math.h>
#include <redblue.h>
#include <stdio.h>
#include <stdlib.h>

enum { kTokens = 200, kHeads = 4, kFeatures = 32, kWords = kTokens * kHeads * kFeatures };
static float q[kWords], k[kWords], v[kWords], o[kWords]; /* [token, head, feature] */

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, redblue_last_error());
  return 1;
}

int main(void) {
  for (int i = 0; i < kWords; ++i) {
    q[i] = sinf((float)i), k[i] = sinf(3 * (float)i), v[i] = cosf(5 * (float)i);
  }

  /* 1. A problem and its plan: of least time on this machine; with options.fast_memory_words, of fewest words. */
  redblue_problem problem;
  redblue_problem_init(&problem);
  problem.heads = kHeads;
  problem.n_q = problem.n_k = kTokens;
  problem.d = kFeatures;
  redblue_plan_options options;
  redblue_plan_options_init(&options);
  redblue_plan* plan = NULL;
  if (redblue_plan_create(&problem, &options, &plan) != REDBLUE_OK) return failed("plan");

  /* 2. Tensors: batch, head, token and feature each have a stride. */
  redblue_forward_tensors tensors;
  redblue_forward_tensors_init(&tensors);
  tensors.q.data = q, tensors.k.data = k, tensors.v.data = v, tensors.o.data = o;
  const int64_t strides[4] = {kWords, kFeatures, kHeads * kFeatures, 1};
  for (int i = 0; i < 4; ++i)
    tensors.q.strides[i] = tensors.k.strides[i] = tensors.v.strides[i] = tensors.o.strides[i] = strides[i];

  /* 3. Memory for all runs of this plan on such tensors. */
  redblue_run_options run;
  redblue_run_options_init(&run);
  if (redblue_forward_workspace(plan, &tensors, &run, &run.workspace_size) != REDBLUE_OK) return failed("workspace");
  run.workspace = malloc(run.workspace_size);

  /* 4. Run. */
  if (redblue_forward(plan, &tensors, &run) != REDBLUE_OK) return failed("forward");

  redblue_plan_info info;
  redblue_plan_info_init(&info);
  redblue_plan_describe(plan, &info);
  printf("%s moved %lld words, %.4f times the bound, in %zu bytes beside q, k, v and o\n", info.schedule,
         (long long)(info.words_read + info.words_written), info.ratio, run.workspace_size);

  /* The last query of the last head, the plain way. */
  const int at = ((kTokens - 1) * kHeads + kHeads - 1) * kFeatures;
  double sum = 0, expected = 0;
  for (int j = 0; j < kTokens; ++j) {
    const int key = (j * kHeads + kHeads - 1) * kFeatures;
    double score = 0;
    for (int f = 0; f < kFeatures; ++f) score += (double)q[at + f] * (double)k[key + f];
    const double weight = exp(score / sqrt((double)kFeatures));
    sum += weight;
    expected += weight * (double)v[key];
  }
  const double error = fabs((double)o[at] - expected / sum);
  printf("o = %.6f, off by %.1e\n", (double)o[at], error);

  free(run.workspace);
  redblue_plan_destroy(plan);
  return error < 1e-6 ? 0 : 1;
}
