/* redblue over the ranks of MPI: each process has some rows of q, k and v, and gets these rows of o, or of dq, dk and
 * dv.
 *
 * Every rank calls the same function with the same problem, the problem of all ranks together, and the same layout. Its
 * tensors hold the rows that it has at home, with all heads: redblue_ranks_rows says how many, redblue_ranks_positions
 * which. docs/ranks.md says what a layout is and how many words cross the network.
 *
 * These functions are in the library redblue_mpi (-DREDBLUE_MPI=ON), which has those of redblue.h, too. This header
 * needs no mpi.h: a communicator comes as its MPI_Fint, MPI_Comm_c2f(comm), which Fortran programs have. */
#ifndef REDBLUE_MPI_H
#define REDBLUE_MPI_H

#include "redblue.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How rows of queries and of keys reach the ranks that need them. */
typedef int32_t redblue_transfer;
enum {
  REDBLUE_EXCHANGE =
      0,              /* each home sends a rank the rows that it needs, one home after the other while the rank works */
  REDBLUE_GATHER = 1, /* likewise, all of them before the rank works */
  REDBLUE_RING = 2    /* whole blocks go from neighbour to neighbour: one row or one column of ranks */
};

/* Which rank has which rows. */
typedef int32_t redblue_ownership;
enum {
  REDBLUE_CONTIGUOUS = 0,   /* rank r of P has the r-th of P ranges */
  REDBLUE_ZIG_ZAG = 1,      /* rank r has ranges r and 2P - 1 - r of 2P: under a causal mask all have equal work */
  REDBLUE_BLOCK_CYCLIC = 2, /* blocks of `block` rows are dealt out in turn */
  REDBLUE_DOCUMENTS = 3     /* each packed sequence lies on one rank */
};

/* head_groups x grid_rows x grid_cols ranks, as many as the communicator has. grid_rows = ranks moves keys and values,
 * grid_cols = ranks queries, head_groups = ranks heads. */
typedef struct redblue_layout {
  size_t struct_size;
  int32_t head_groups, grid_rows, grid_cols; /* default 1 */
  redblue_transfer transfer;
  redblue_ownership ownership;
  int64_t block;        /* rows, for REDBLUE_BLOCK_CYCLIC */
  int64_t reproducible; /* above 0: the same bits for every number of ranks whose layouts have blocks of as many rows */
  int32_t keeps_heads;  /* 1: a forward pass leaves q, k and v of a rank's heads in `kept` of the options, and its
                           gradient finds them there: they do not travel again. For 2 head groups or more */
} redblue_layout;

/* What a forward pass leaves on a rank for its gradient. It goes with the q, k and v of that pass alone. */
typedef struct redblue_kept redblue_kept;
REDBLUE_API redblue_status redblue_kept_create(redblue_kept** kept);
REDBLUE_API void redblue_kept_destroy(redblue_kept* kept); /* NULL: nothing happens */

typedef struct redblue_ranks_options {
  size_t struct_size;
  redblue_dtype compute; /* arithmetic: REDBLUE_F32 (default), REDBLUE_F64, or REDBLUE_BF16. lse, and partial results on
                            the network, are REDBLUE_F64 where it is, else REDBLUE_F32 */
  int32_t threads;       /* of this rank; default 0: as many of redblue's own, or of `pool`, as the work is worth. Any
                            number but 1 wants an MPI that was initialised with MPI_THREAD_FUNNELED or more */
  const redblue_thread_pool* pool; /* NULL: redblue's own threads */
  int64_t fast_memory_words;       /* M of each thread: the work of a rank moves the fewest words; 0: the least time */
  double patience;                 /* seconds to wait for a message of another rank; default 600 */
  redblue_kept* kept; /* where the layout keeps heads, and NULL elsewhere: the forward pass and its gradient get one */
} redblue_ranks_options;

/* What this rank did. Words of q, k, v and what goes with them, and of partial results; messages of both. */
typedef struct redblue_ranks_info {
  size_t struct_size;
  int64_t inputs_received, partials_received, messages_received;
  int64_t inputs_sent, partials_sent, messages_sent;
  int64_t bytes_received, bytes_sent;
  int64_t words_moved;               /* between fast and slow memory of this rank */
  int64_t held_bytes, staging_bytes; /* most at a time beside the tensors: blocks that pass, messages on their way */
  double seconds, seconds_waited;    /* in all, and for messages */
} redblue_ranks_info;

static inline void redblue_layout_init(redblue_layout* s) { redblue_init(REDBLUE_STRUCT_LAYOUT, s, sizeof *s); }
static inline void redblue_ranks_options_init(redblue_ranks_options* s) {
  redblue_init(REDBLUE_STRUCT_RANKS_OPTIONS, s, sizeof *s);
}
static inline void redblue_ranks_info_init(redblue_ranks_info* s) {
  redblue_init(REDBLUE_STRUCT_RANKS_INFO, s, sizeof *s);
}

/* How many queries and keys a rank has at home; some may have none. These two functions need no communicator. */
REDBLUE_API redblue_status redblue_ranks_rows(const redblue_problem* problem, const redblue_layout* layout,
                                              int32_t rank, int64_t* queries, int64_t* keys);
/* Their positions, in the order of the rows of its tensors: as many numbers as redblue_ranks_rows says. NULL: not asked
 * for. */
REDBLUE_API redblue_status redblue_ranks_positions(const redblue_problem* problem, const redblue_layout* layout,
                                                   int32_t rank, int64_t* queries, int64_t* keys);

/* Attention, or its gradients, over the ranks of a communicator: all of its ranks call this. Tensors are as in
 * redblue.h with n_q and n_k of this rank; slopes and sinks are whole, and a bias has a row for each query at home and
 * a column for each key of all ranks, or 1 where all share it. lse, and the lse of a gradient, have the type of the
 * arithmetic. A rank without rows may leave data NULL. options NULL: the defaults; info NULL: not asked for.
 *
 * Before a run all ranks compare what they were asked for. Where one of them cannot begin, or fails, all of them return
 * an error: that rank its own, the others REDBLUE_RANK_FAILED with a message that names it. Outputs are then undefined.
 * Patterns, padding, approximations, k and v of REDBLUE_INT8, and dlse are refused. Every rank gets all of dsinks,
 * summed over all ranks; dbias has the rows of bias, and is summed over all ranks where all queries share one row. The
 * same bits whenever messages arrive. */
REDBLUE_API redblue_status redblue_mpi_forward(const redblue_problem* problem, const redblue_layout* layout,
                                               int64_t comm, const redblue_forward_tensors* tensors,
                                               const redblue_ranks_options* options, redblue_ranks_info* info);
REDBLUE_API redblue_status redblue_mpi_backward(const redblue_problem* problem, const redblue_layout* layout,
                                                int64_t comm, const redblue_backward_tensors* tensors,
                                                const redblue_ranks_options* options, redblue_ranks_info* info);

#ifdef __cplusplus
}
#endif

#endif /* REDBLUE_MPI_H */
