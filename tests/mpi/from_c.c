/* Attention over ranks from C against attention of the whole. Start it with mpirun -n P; its exit status is 1 where
 * something is wrong. A program outside of this tree is compiled of it, too: tests/consumer/test.sh. */
#include <math.h>
#include <mpi.h>
#include <redblue_mpi.h>
#include <stdio.h>
#include <string.h>

enum { kBatch = 2, kHeads = 4, kKvHeads = 2, kN = 23, kD = 5, kDv = 3 };
typedef struct {
  double q[kBatch * kHeads * kN * kD], k[kBatch * kKvHeads * kN * kD], v[kBatch * kKvHeads * kN * kDv];
  double o[kBatch * kHeads * kN * kDv], lse[kBatch * kHeads * kN], d_o[kBatch * kHeads * kN * kDv];
  double dq[kBatch * kHeads * kN * kD], dk[kBatch * kKvHeads * kN * kD], dv[kBatch * kKvHeads * kN * kDv];
  double bias[kN * kN], sinks[kHeads], dbias[kN * kN], dsinks[kHeads];
} Arrays;
static Arrays whole, own, alone;
static int rank, ranks, failures;
static int modified; /* with a bias, sinks and dropout */

#define CHECK(what)                                                                                \
  do {                                                                                             \
    if (!(what)) {                                                                                 \
      fprintf(stderr, "line %d, rank %d: %s (%s)\n", __LINE__, rank, #what, redblue_last_error()); \
      ++failures;                                                                                  \
    }                                                                                              \
  } while (0)

/* A call that fails with this status and a message that contains this text. */
static void refused(int line, redblue_status got, redblue_status wanted, const char* text) {
  if (got == wanted && strstr(redblue_last_error(), text) != NULL) return;
  fprintf(stderr, "line %d, rank %d: %s, \"%s\"\n", line, rank, redblue_status_string(got), redblue_last_error());
  ++failures;
}
#define REFUSED(call, status, text) refused(__LINE__, (call), (status), (text))
/* One that the last rank alone asks for wrongly: it says why, and the others name it. */
#define REFUSED_BY_LAST(call, status, text)              \
  do {                                                   \
    char last[32];                                       \
    snprintf(last, sizeof last, "rank %d: ", ranks - 1); \
    if (rank == ranks - 1)                               \
      REFUSED(call, status, text);                       \
    else                                                 \
      REFUSED(call, REDBLUE_RANK_FAILED, last);          \
  } while (0)

static redblue_problem problem_of(redblue_operation operation) {
  redblue_problem p;
  redblue_problem_init(&p);
  p.operation = operation;
  p.batch = kBatch, p.heads = kHeads, p.kv_heads = kKvHeads, p.n_q = p.n_k = kN, p.d = kD, p.d_v = kDv, p.causal = 1;
  if (!modified) return p;
  p.has_bias = 1, p.bias_shape[0] = p.bias_shape[1] = 1, p.bias_shape[2] = p.bias_shape[3] = kN;
  p.sinks = 1, p.dropout = 0.25, p.seed = 5;
  p.bias_gradient = p.sinks_gradient = operation == REDBLUE_BACKWARD;
  return p;
}

static redblue_forward_tensors forward_of(Arrays* a) {
  redblue_forward_tensors t;
  redblue_forward_tensors_init(&t);
  t.q.dtype = t.k.dtype = t.v.dtype = t.o.dtype = t.lse.dtype = REDBLUE_F64;
  t.q.data = a->q, t.k.data = a->k, t.v.data = a->v, t.o.data = a->o, t.lse.data = a->lse;
  t.bias.dtype = t.sinks.dtype = REDBLUE_F64;
  if (modified) t.bias.data = a->bias, t.sinks.data = a->sinks;
  return t;
}

static redblue_backward_tensors backward_of(Arrays* a) {
  redblue_backward_tensors t;
  redblue_backward_tensors_init(&t);
  t.q.dtype = t.k.dtype = t.v.dtype = t.o.dtype = t.lse.dtype = t.d_o.dtype = REDBLUE_F64;
  t.dq.dtype = t.dk.dtype = t.dv.dtype = REDBLUE_F64;
  t.q.data = a->q, t.k.data = a->k, t.v.data = a->v, t.o.data = a->o, t.lse.data = a->lse, t.d_o.data = a->d_o;
  t.dq.data = a->dq, t.dk.data = a->dk, t.dv.data = a->dv;
  t.bias.dtype = t.sinks.dtype = t.dbias.dtype = t.dsinks.dtype = REDBLUE_F64;
  if (modified) t.bias.data = a->bias, t.sinks.data = a->sinks, t.dbias.data = a->dbias, t.dsinks.data = a->dsinks;
  return t;
}

static redblue_ranks_options options_here(void) {
  redblue_ranks_options o;
  redblue_ranks_options_init(&o);
  o.compute = REDBLUE_F64, o.threads = 1, o.fast_memory_words = 200, o.patience = 60;
  return o;
}

static void compute_whole(void) {
  for (int i = 0; i < kBatch * kHeads * kN * kD; ++i) whole.q[i] = sin(i);
  for (int i = 0; i < kBatch * kKvHeads * kN * kD; ++i) whole.k[i] = sin(3.0 * i);
  for (int i = 0; i < kBatch * kKvHeads * kN * kDv; ++i) whole.v[i] = cos(5.0 * i);
  for (int i = 0; i < kBatch * kHeads * kN * kDv; ++i) whole.d_o[i] = cos(7.0 * i);
  for (int i = 0; i < kN * kN; ++i) whole.bias[i] = sin(11.0 * i);
  for (int h = 0; h < kHeads; ++h) whole.sinks[h] = cos(13.0 * h);
  redblue_plan_options options;
  redblue_plan_options_init(&options);
  options.compute = options.dtype = REDBLUE_F64, options.fast_memory_words = 200;
  const redblue_forward_tensors forward = forward_of(&whole);
  const redblue_backward_tensors backward = backward_of(&whole);
  for (int op = REDBLUE_FORWARD; op <= REDBLUE_BACKWARD; ++op) {
    const redblue_problem p = problem_of(op);
    redblue_plan* plan = NULL;
    CHECK(redblue_plan_create(&p, &options, &plan) == REDBLUE_OK);
    if (op == REDBLUE_FORWARD)
      CHECK(redblue_forward(plan, &forward, NULL) == REDBLUE_OK);
    else
      CHECK(redblue_backward(plan, &backward, NULL) == REDBLUE_OK);
    redblue_plan_destroy(plan);
  }
}

/* The rows of `all` at these positions. */
static void take(const double* all, int heads, int cols, const int64_t* positions, int64_t rows, double* to) {
  for (int h = 0; h < kBatch * heads; ++h)
    for (int64_t r = 0; r < rows; ++r)
      for (int c = 0; c < cols; ++c) *to++ = all[(h * kN + positions[r]) * cols + c];
}
static int is_near(const double* all, int heads, int cols, const int64_t* positions, int64_t rows,
                   const double* found) {
  static double wanted[kBatch * kHeads * kN * kD];
  take(all, heads, cols, positions, rows, wanted);
  for (int64_t i = 0; i < kBatch * heads * rows * cols; ++i)
    if (!(fabs(wanted[i] - found[i]) < 1e-12)) return 0;
  return 1;
}

/* Words of inputs that this rank sent for the gradient. */
static int64_t test_layout(int64_t comm, const redblue_layout* layout) {
  const redblue_problem forward = problem_of(REDBLUE_FORWARD), backward = problem_of(REDBLUE_BACKWARD);
  int64_t n_q = -1, n_k = -1, queries[kN], keys[kN], all_rows[2] = {0, 0}, rows[2];
  CHECK(redblue_ranks_rows(&forward, layout, rank, &n_q, &n_k) == REDBLUE_OK);
  CHECK(redblue_ranks_positions(&forward, layout, rank, queries, NULL) == REDBLUE_OK);
  CHECK(redblue_ranks_positions(&forward, layout, rank, NULL, keys) == REDBLUE_OK);
  rows[0] = n_q, rows[1] = n_k;
  MPI_Allreduce(rows, all_rows, 2, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  CHECK(all_rows[0] == kN && all_rows[1] == kN);

  memset(&own, 0, sizeof own);
  take(whole.q, kHeads, kD, queries, n_q, own.q);
  take(whole.k, kKvHeads, kD, keys, n_k, own.k);
  take(whole.v, kKvHeads, kDv, keys, n_k, own.v);
  take(whole.d_o, kHeads, kDv, queries, n_q, own.d_o);
  for (int64_t r = 0; r < n_q; ++r) memcpy(own.bias + r * kN, whole.bias + queries[r] * kN, sizeof(double[kN]));
  memcpy(own.sinks, whole.sinks, sizeof own.sinks);
  redblue_forward_tensors f = forward_of(&own);
  redblue_backward_tensors b = backward_of(&own);
  redblue_ranks_options options = options_here();
  if (layout->reproducible > 0) options.fast_memory_words = 0;
  if (layout->keeps_heads) CHECK(redblue_kept_create(&options.kept) == REDBLUE_OK);
  redblue_ranks_info info, of_gradient;
  redblue_ranks_info_init(&info), redblue_ranks_info_init(&of_gradient);
  CHECK(redblue_mpi_forward(&forward, layout, comm, &f, &options, &info) == REDBLUE_OK);
  CHECK(is_near(whole.o, kHeads, kDv, queries, n_q, own.o));
  CHECK(is_near(whole.lse, kHeads, 1, queries, n_q, own.lse));
  int64_t moved[2] = {info.inputs_sent - info.inputs_received, info.partials_sent - info.partials_received}, sums[2];
  MPI_Allreduce(moved, sums, 2, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  CHECK(sums[0] == 0 && sums[1] == 0);
  CHECK(info.bytes_sent == 8 * (info.inputs_sent + info.partials_sent));
  CHECK(n_q == 0 || info.words_moved > 0);
  CHECK(redblue_mpi_backward(&backward, layout, comm, &b, &options, &of_gradient) == REDBLUE_OK);
  redblue_kept_destroy(options.kept);
  CHECK(is_near(whole.dq, kHeads, kD, queries, n_q, own.dq));
  CHECK(is_near(whole.dk, kKvHeads, kD, keys, n_k, own.dk));
  CHECK(is_near(whole.dv, kKvHeads, kDv, keys, n_k, own.dv));
  for (int64_t r = 0; modified && r < n_q; ++r)
    for (int c = 0; c < kN; ++c) CHECK(fabs(own.dbias[r * kN + c] - whole.dbias[queries[r] * kN + c]) < 1e-12);
  for (int h = 0; modified && h < kHeads; ++h) CHECK(fabs(own.dsinks[h] - whole.dsinks[h]) < 1e-12);
  return of_gradient.inputs_sent;
}

static redblue_layout layout_of(int groups, int rows, int cols, redblue_transfer transfer,
                                redblue_ownership ownership) {
  redblue_layout l;
  redblue_layout_init(&l);
  l.head_groups = groups, l.grid_rows = rows, l.grid_cols = cols, l.transfer = transfer, l.ownership = ownership;
  if (ownership == REDBLUE_BLOCK_CYCLIC) l.block = 3;
  return l;
}

/* Heads that stay do not travel for the gradient. */
static void test_kept(int64_t comm) {
  redblue_layout l = layout_of(2, ranks / 2, 1, REDBLUE_EXCHANGE, REDBLUE_CONTIGUOUS);
  const int64_t travelled = test_layout(comm, &l);
  l.keeps_heads = 1;
  CHECK(test_layout(comm, &l) < travelled);
  const redblue_problem forward = problem_of(REDBLUE_FORWARD), backward = problem_of(REDBLUE_BACKWARD);
  const redblue_forward_tensors f = forward_of(&own);
  const redblue_backward_tensors b = backward_of(&own);
  redblue_ranks_options o = options_here();
  REFUSED(redblue_mpi_forward(&forward, &l, comm, &f, &o, NULL), REDBLUE_INVALID_ARGUMENT, "keeps_heads without");
  CHECK(redblue_kept_create(&o.kept) == REDBLUE_OK);
  REFUSED(redblue_mpi_backward(&backward, &l, comm, &b, &o, NULL), REDBLUE_INVALID_ARGUMENT,
          "no forward pass has kept");
  l.keeps_heads = 0;
  REFUSED(redblue_mpi_forward(&forward, &l, comm, &f, &o, NULL), REDBLUE_INVALID_ARGUMENT, "without keeps_heads");
  redblue_kept_destroy(o.kept);
}

/* All ranks together get the bits that one of them gets alone. */
static void test_reproducible(int64_t comm) {
  redblue_layout l = layout_of(1, ranks, 1, REDBLUE_GATHER, REDBLUE_CONTIGUOUS);
  l.reproducible = 4;
  test_layout(comm, &l);
  redblue_layout one = layout_of(1, 1, 1, REDBLUE_GATHER, REDBLUE_CONTIGUOUS);
  one.reproducible = 4;
  const redblue_problem forward = problem_of(REDBLUE_FORWARD);
  redblue_ranks_options options = options_here();
  options.fast_memory_words = 0;
  alone = whole;
  const redblue_forward_tensors t = forward_of(&alone);
  CHECK(redblue_mpi_forward(&forward, &one, MPI_Comm_c2f(MPI_COMM_SELF), &t, &options, NULL) == REDBLUE_OK);
  int64_t n_q = -1, n_k = -1, queries[kN];
  CHECK(redblue_ranks_rows(&forward, &l, rank, &n_q, &n_k) == REDBLUE_OK);
  CHECK(redblue_ranks_positions(&forward, &l, rank, queries, NULL) == REDBLUE_OK);
  static double wanted[kBatch * kHeads * kN * kDv];
  take(alone.o, kHeads, kDv, queries, n_q, wanted);
  CHECK(memcmp(wanted, own.o, sizeof(double[kBatch * kHeads * kDv]) * (size_t)n_q) == 0);
}

static void test_refusals(int64_t comm) {
  const int is_last = rank == ranks - 1;
  const redblue_layout layout = layout_of(1, ranks, 1, REDBLUE_EXCHANGE, REDBLUE_CONTIGUOUS);
  const redblue_problem forward = problem_of(REDBLUE_FORWARD);
  const redblue_forward_tensors t = forward_of(&own);
  const redblue_ranks_options options = options_here();
  redblue_layout l = layout;
  redblue_problem p = forward;
  redblue_forward_tensors f = t;
  redblue_ranks_options o = options;
  redblue_ranks_info info;
  redblue_ranks_info_init(&info);

  REFUSED_BY_LAST(redblue_mpi_forward(&forward, &layout, comm, is_last ? NULL : &t, &options, NULL),
                  REDBLUE_INVALID_ARGUMENT, "redblue_forward_tensors is NULL");
  REFUSED_BY_LAST(redblue_mpi_forward(is_last ? NULL : &forward, &layout, comm, &t, &options, NULL),
                  REDBLUE_INVALID_ARGUMENT, "redblue_problem is NULL");
  if (is_last) l.transfer = 7;
  REFUSED_BY_LAST(redblue_mpi_forward(&forward, &l, comm, &t, &options, NULL), REDBLUE_INVALID_ARGUMENT,
                  "transfer = 7 is no redblue_transfer");
  l = layout;
  if (is_last) l.ownership = -1;
  REFUSED_BY_LAST(redblue_mpi_forward(&forward, &l, comm, &t, &options, NULL), REDBLUE_INVALID_ARGUMENT,
                  "ownership = -1 is no redblue_ownership");
  if (is_last) f.q.data = (const char*)own.q + 1;
  REFUSED_BY_LAST(redblue_mpi_forward(&forward, &layout, comm, &f, &options, NULL), REDBLUE_INVALID_ARGUMENT,
                  "tensor q is not aligned");
  if (is_last) info.struct_size = 3;
  REFUSED_BY_LAST(redblue_mpi_forward(&forward, &layout, comm, &t, &options, &info), REDBLUE_INVALID_ARGUMENT,
                  "struct_size of redblue_ranks_info is 3");
  if (is_last) o.patience = 0;
  REFUSED_BY_LAST(redblue_mpi_forward(&forward, &layout, comm, &t, &o, NULL), REDBLUE_INVALID_ARGUMENT,
                  "patience = 0: give seconds");
  o = options;
  if (is_last) o.fast_memory_words = -1;
  REFUSED_BY_LAST(redblue_mpi_forward(&forward, &layout, comm, &t, &o, NULL), REDBLUE_INVALID_ARGUMENT,
                  "fast_memory_words = -1");
  o.fast_memory_words = 2; /* no schedule fits */
  REFUSED_BY_LAST(redblue_mpi_forward(&forward, &layout, comm, &t, is_last ? &o : &options, NULL),
                  REDBLUE_FAST_MEMORY_TOO_SMALL, "");
  if (is_last) p.dilation = 2;
  REFUSED_BY_LAST(redblue_mpi_forward(&p, &layout, comm, &t, &options, NULL), REDBLUE_UNSUPPORTED,
                  "ranks do not share dilated windows");
  if (ranks > 1) { /* each rank alone is content */
    p = forward;
    if (is_last) p.causal = 0;
    REFUSED(redblue_mpi_forward(&p, &layout, comm, &t, &options, NULL), REDBLUE_RANK_FAILED,
            "was not asked for what rank 0 was");
  }

  p = problem_of(REDBLUE_BACKWARD);
  REFUSED(redblue_mpi_forward(&p, &layout, comm, &t, &options, NULL), REDBLUE_INVALID_ARGUMENT,
          "call redblue_mpi_backward with it");
  redblue_backward_tensors b = backward_of(&own);
  b.dsinks.data = own.dsinks;
  REFUSED(redblue_mpi_backward(&p, &layout, comm, &b, &options, NULL), REDBLUE_INVALID_ARGUMENT,
          "sinks_gradient of the problem is not set");
  l = layout;
  l.grid_rows = ranks + 1;
  REFUSED(redblue_mpi_forward(&forward, &l, comm, &t, &options, NULL), REDBLUE_INVALID_ARGUMENT, "ranks for a layout");
  REFUSED(redblue_mpi_forward(&forward, &layout, MPI_Comm_c2f(MPI_COMM_NULL), &t, &options, NULL), REDBLUE_RANK_FAILED,
          "MPI_COMM_NULL has no ranks");
  REFUSED(redblue_mpi_forward(&forward, &layout, INT64_MAX, &t, &options, NULL), REDBLUE_INVALID_ARGUMENT,
          "is no MPI_Fint");
  int64_t n = 0;
  REFUSED(redblue_ranks_rows(&forward, &layout, ranks, &n, &n), REDBLUE_INVALID_ARGUMENT, "give 0 to");
  REFUSED(redblue_ranks_rows(&forward, &layout, 0, &n, NULL), REDBLUE_INVALID_ARGUMENT, "keys is NULL");
}

/* The last rank comes when the patience of the others is over. */
static void test_patience(int64_t comm) {
  const redblue_layout layout = layout_of(1, ranks, 1, REDBLUE_EXCHANGE, REDBLUE_CONTIGUOUS);
  const redblue_problem forward = problem_of(REDBLUE_FORWARD);
  const redblue_forward_tensors t = forward_of(&own);
  redblue_ranks_options o = options_here();
  o.patience = 0.2;
  if (rank != ranks - 1)
    REFUSED(redblue_mpi_forward(&forward, &layout, comm, &t, &o, NULL), REDBLUE_RANK_FAILED,
            "has not come within 200 ms");
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == ranks - 1)
    REFUSED(redblue_mpi_forward(&forward, &layout, comm, &t, &o, NULL), REDBLUE_RANK_FAILED, "within 200 ms");
  MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  const redblue_problem forward = problem_of(REDBLUE_FORWARD);
  REFUSED(redblue_mpi_forward(&forward, NULL, 0, NULL, NULL, NULL), REDBLUE_RANK_FAILED, "MPI is not initialised");
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int64_t comm = MPI_Comm_c2f(MPI_COMM_WORLD);
  compute_whole();
  redblue_layout l = layout_of(1, ranks, 1, REDBLUE_EXCHANGE, REDBLUE_CONTIGUOUS);
  test_layout(comm, &l);
  l = layout_of(1, 1, ranks, REDBLUE_GATHER, REDBLUE_ZIG_ZAG);
  test_layout(comm, &l);
  l = layout_of(1, ranks, 1, REDBLUE_RING, REDBLUE_BLOCK_CYCLIC);
  test_layout(comm, &l);
  if (ranks % 2 == 0) test_kept(comm);
  test_reproducible(comm);
  test_refusals(comm);
  modified = 1;
  compute_whole();
  l = layout_of(1, ranks, 1, REDBLUE_EXCHANGE, REDBLUE_ZIG_ZAG);
  test_layout(comm, &l);
  l = layout_of(1, 1, ranks, REDBLUE_EXCHANGE, REDBLUE_CONTIGUOUS);
  test_layout(comm, &l);
  modified = 0;
  compute_whole();
  l = layout_of(1, ranks, 1, REDBLUE_EXCHANGE, REDBLUE_CONTIGUOUS);
  test_layout(comm, &l); /* after errors */
  if (ranks > 1) test_patience(comm);
  int all = 0;
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && all == 0) printf("%d ranks from C: right\n", ranks);
  MPI_Finalize();
  return all == 0 ? 0 : 1;
}
