/* redblue: attention with every word between fast and slow memory counted. The C interface.
 *
 * Three steps: redblue_plan_create chooses a schedule for a problem; redblue_forward_workspace says how much memory a
 * run takes beside inputs and outputs; redblue_forward runs it on your tensors, in your memory, on your threads.
 * docs/c-api.md has a complete program.
 *
 * Call the function named after a struct first, as redblue_problem_init(&problem): it sets struct_size and the
 * defaults. A function returns REDBLUE_OK, or another status after which redblue_last_error() has the message; it
 * throws no exception. A plan never changes after its creation: any number of threads may use it at once. A word is a
 * scalar of the compute type, or of f32 if that type is bf16. */
#ifndef REDBLUE_H
#define REDBLUE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define REDBLUE_API __attribute__((visibility("default")))
#else
#define REDBLUE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum redblue_status {
  REDBLUE_OK = 0,
  REDBLUE_INVALID_ARGUMENT = 1,      /* a null pointer, a wrong struct_size, an impossible size or option */
  REDBLUE_UNSUPPORTED = 2,           /* well formed, but redblue cannot do it */
  REDBLUE_FAST_MEMORY_TOO_SMALL = 3, /* no schedule fits in fast_memory_words */
  REDBLUE_NOT_ENOUGH_MEMORY = 4,     /* more bytes needed than workspace, max_workspace or the machine has */
  REDBLUE_INTERNAL_ERROR = 5,        /* a fault of redblue, or of a thread pool */
  REDBLUE_RANK_FAILED = 6 /* over ranks (redblue_mpi.h): another rank failed or does not answer, or MPI did */
} redblue_status;

typedef int32_t redblue_operation;
enum {
  REDBLUE_FORWARD = 0,
  REDBLUE_BACKWARD = 1,
  REDBLUE_SCORES = 2,  /* the matrix of scores before the softmax */
  REDBLUE_WEIGHTS = 3, /* the matrix of weights, from the lse of a forward pass */
  REDBLUE_TANGENT = 4, /* how o and lse move when q, k and v do: redblue_second.h */
  REDBLUE_SECOND = 5   /* the gradients of gradients: redblue_second.h */
};

typedef int32_t redblue_dtype;
enum {
  REDBLUE_F64 = 0,
  REDBLUE_F32 = 1,
  REDBLUE_F16 = 2,
  REDBLUE_BF16 = 3,
  REDBLUE_BOOL = 4, /* of a bias: a mask, true keeps */
  REDBLUE_INT8 = 5  /* of the k and v of a forward pass, with scales */
};

typedef int32_t redblue_objective;
enum {
  REDBLUE_MINIMISE_WORDS = 0,
  REDBLUE_MINIMISE_TIME = 1,
  REDBLUE_MINIMISE_DEFAULT = 2 /* words where fast memory is given, else time */
};

/* Which keys each query sees, where causal, a window and a prefix do not say it. A pattern never changes: any number of
 * problems and threads may use it at once. */
typedef struct redblue_pattern redblue_pattern;

/* In which order a run takes the queries and keys of patterns: the words moved depend on it, and of results the
 * rounding. A run gathers its inputs in this order, into the workspace, and scatters its outputs. With ALiBi or
 * dropout, for REDBLUE_SCORES and REDBLUE_WEIGHTS, and where heads or batches with patterns of their own share one
 * bias, the planner leaves them as they come, and REDBLUE_ORDER_RCM and REDBLUE_ORDER_JACCARD are refused. */
typedef int32_t redblue_pattern_order;
enum {
  REDBLUE_ORDER_AUTOMATIC = 0, /* the planner's choice: the fewest words, or the least time */
  REDBLUE_ORDER_NATURAL = 1,   /* as they come */
  REDBLUE_ORDER_RCM = 2,       /* reverse Cuthill-McKee: queries that share keys stand close */
  REDBLUE_ORDER_JACCARD = 3,   /* each query is followed by the one whose keys are most alike */
  REDBLUE_ORDER_IN_PLACE = 4   /* as they come, with nothing left out: a run copies nothing */
};

/* O = softmax(scale Q K^T) V for `batch` x `heads`, and lse, the log of the row sums of exp(scale Q K^T); or the
 * gradients of O in Q, K and V. */
typedef struct redblue_problem {
  size_t struct_size;
  redblue_operation operation;
  int32_t causal;        /* query i sees keys j <= i + causal_offset */
  int64_t batch, heads;  /* default 1 */
  int64_t kv_heads;      /* 0: heads; heads / kv_heads query heads share a head of K and V */
  int64_t n_q, n_k, d;   /* queries, keys, features of both */
  int64_t d_v;           /* features of values; 0: d */
  int64_t causal_offset; /* used if has_causal_offset; default n_k - n_q: the last query sees the last key */
  double scale;          /* used if has_scale; default 1 / sqrt(d) */
  int32_t has_causal_offset;
  int32_t has_scale;
  int32_t lse_required;    /* forward: only plans that can write lse (a few cannot); a run writes lse if it is given */
  int32_t forward_missing; /* backward, tangent, second: o and lse are not given; a forward pass runs first */
  int64_t window_left;     /* used if has_window_left: query i sees no key before i + causal_offset - window_left */
  int64_t window_right;    /* used if has_window_right: query i sees no key after i + causal_offset + window_right */
  int64_t prefix;          /* no right edge hides the first `prefix` keys; with causal or window_right */
  int32_t has_window_left;
  int32_t has_window_right;
  /* What acts on scores and weights beside scale and mask, in this order: docs/semantics.md. */
  double softcap;        /* > 0: scores become softcap tanh(score / softcap) */
  int64_t bias_shape[4]; /* used if has_bias, added to scores: [batch, heads, n_q, n_k], 1 for what all share */
  double dropout;        /* the share of weights that become 0, at random: 0 <= dropout < 1 */
  int64_t seed;          /* of dropout, 0 to 2^53 */
  int32_t has_bias;
  int32_t alibi;          /* score -= slopes[head] |i + causal_offset - j| */
  int32_t sinks;          /* one more score in each row, sinks[head], whose value is 0 */
  int32_t bias_gradient;  /* backward: form dbias, summed over all that share the bias */
  int32_t sinks_gradient; /* backward: form dsinks */
  /* Packed sequences: sequence s has the queries cu_seqlens_q[s] to cu_seqlens_q[s + 1] - 1, the keys of cu_seqlens_k
   * likewise, and sees nothing else. Each list has `sequences` + 1 numbers, from 0 to n_q (n_k); NULL where the other
   * serves for both. Padding: batch b, or packed sequence b, uses its first seqused_q[b] queries and seqused_k[b] keys;
   * NULL: all. Causal offset, window, prefix count from the first query and key of each. The lists are copied. */
  int64_t sequences;
  const int64_t* cu_seqlens_q;
  const int64_t* cu_seqlens_k;
  const int64_t* seqused_q;
  const int64_t* seqused_k;
  /* n_patterns: 0, 1 for all, `heads` (one for each query head) or batch heads (head h of batch b: [b heads + h]). A
   * pattern may stand there several times. Causal, window, prefix and sequences hide keys of them, too. */
  const redblue_pattern* const* patterns;
  int64_t n_patterns;
  redblue_pattern_order order; /* of patterns */
  /* Polynomial attention: the polynomial of this degree, 1 to 12, that is nearest e^z for |z| <= approximate_range
   * stands for e^z. Forward and backward; no lse, and no bias, alibi, softcap, sinks, dropout or patterns.
   * redblue_certify says what is proved of the result. 0: exact attention. */
  int64_t approximate_degree;
  double approximate_range; /* above 0, at most 64 */
  /* Any approximation, as --approximate of the program takes it: "2:1.0,rows", "4:1,taylor", "linear",
   * "performer:256,seed=7". With it approximate_degree must be 0. NULL: none. The text is copied. */
  const char* approximate;
  /* Above 1: query i sees only keys whose distance from i + causal_offset is a multiple of it, and the window counts
   * such steps. Each residue of queries and keys is then taken as a sequence of its own. It goes neither with alibi,
   * dropout, patterns and approximations nor with REDBLUE_SCORES and REDBLUE_WEIGHTS: there a pattern serves that
   * redblue_pattern_longformer makes with 0 globals and this step. Default 1; 0 means 1, too. */
  int64_t dilation;
  /* The keys are some of all keys: docs/algorithms/accumulating.md. Forward goes on from the given o and lse, those of
   * other keys (lse = -infinity: of none). Backward, with o and lse of all keys, adds to the given dq, dk and dv. Under
   * a mask or with alibi set causal_offset: only the caller knows where these keys lie among all. */
  int32_t accumulate;
  int32_t lse_gradient; /* backward, second: lse has a gradient, dlse, beside that of o */
  /* Tangent: the bias moves, along tbias. Second: dbias has the cotangent gbias, and lbias is formed; there is no
   * softcap then. */
  int32_t bias_direction;
  int32_t sinks_direction; /* likewise: tangent has tsinks; second has gsinks and lsinks */
} redblue_problem;

/* Without fast memory the plan has the least modelled time on this machine: it is measured once in a process,
 * briefly, unless `redblue doctor` has left a file or hardware_file names one; fast_memory_words then defaults to
 * twice a core's private cache. With fast_memory_words the plan moves the fewest words, with fast_memory_bytes the
 * fewest bytes. In bytes, q, k, v and d_o take `dtype` in fast memory, all else the type of arithmetic (f32 if that is
 * bf16); in slow memory outputs take `dtype`, too, but what is written of them to be read again takes the type of
 * arithmetic. A run computes in words of one width, whatever the plan was made for. The planner compares max_workspace
 * with a run on contiguous tensors of `dtype` with `threads` threads; another run may take more memory, and is refused
 * if it exceeds max_workspace. compute REDBLUE_BF16 needs `dtype`, and q, k and v, of REDBLUE_BF16. */
typedef struct redblue_plan_options {
  size_t struct_size;
  int64_t fast_memory_words; /* M, of each thread */
  const char* schedule;      /* NULL: the planner's choice */
  redblue_objective objective;
  redblue_dtype compute; /* arithmetic: REDBLUE_F32 (default) or REDBLUE_F64; for tensors of bf16 also REDBLUE_BF16 */
  redblue_dtype dtype;   /* of tensors; default REDBLUE_F32 */
  int32_t threads;       /* default 0: as many of redblue's own as the work is worth */
  size_t max_workspace;  /* most bytes of a run beside inputs and outputs; 0: no limit */
  const char* hardware_file; /* objective time: the file of `redblue doctor`; NULL: this machine */
  int64_t fast_memory_bytes; /* objective words: in place of fast_memory_words */
  int64_t multiple_of_queries, multiple_of_keys,
      multiple_of_features; /* tile sizes are multiples of these; default 1 */
  int64_t reserve_words;    /* of fast memory to leave free */
  int32_t double_buffer;    /* leave room for second buffers of what the innermost loop brings in */
  int64_t keys_per_scale;   /* k and v will be REDBLUE_INT8: how many keys of a head share a scale (n_k: all). Bytes
                             * are minimised, 1 for a word of them and 4 for a scale; default 0: k and v are of `dtype` */
} redblue_plan_options;

/* A tensor [batch, heads, positions, features]; the plan knows the sizes. Strides are in elements and may be negative;
 * if all four are 0 the tensor is contiguous in this order. data is aligned to its element. */
typedef struct redblue_const_tensor {
  const void* data;
  redblue_dtype dtype;
  int64_t strides[4];
} redblue_const_tensor;
typedef struct redblue_tensor {
  void* data;
  redblue_dtype dtype;
  int64_t strides[4];
} redblue_tensor;

/* What words of REDBLUE_INT8 stand for: each word times the scale of its batch, head and block of `keys` keys. keys 0:
 * all keys of a head have one scale. Strides are in elements; 0 for scales that batches, heads or blocks share. data
 * NULL: there are none. */
typedef struct redblue_scales {
  const float* data;
  int64_t keys;
  int64_t batch_stride, head_stride, block_stride;
} redblue_scales;

/* q [batch, heads, n_q, d], k [batch, kv_heads, n_k, d], v [batch, kv_heads, n_k, d_v], o [batch, heads, n_q, d_v],
 * lse [batch, heads, n_q, 1]. lse.data NULL: the run writes no lse. An output shares no memory with another tensor.
 * k and v may both be REDBLUE_INT8, with k_scales and v_scales. */
typedef struct redblue_forward_tensors {
  size_t struct_size;
  redblue_const_tensor q, k, v;
  redblue_tensor o, lse;
  redblue_const_tensor bias, slopes, sinks; /* where the problem has them: bias_shape, [1, heads, 1, 1] */
  redblue_scales k_scales, v_scales;
} redblue_forward_tensors;

/* d_o is the given gradient of the loss in o; o and lse come from the forward pass (ignored if forward_missing); dq, dk
 * and dv have the shapes of q, k and v. A query whose bias holds nothing but the lowest number, for n keys, counts with
 * n times its gradient, for its lse keeps nothing of n: set its rows of d_o to 0, or give a bias of REDBLUE_BOOL. */
typedef struct redblue_backward_tensors {
  size_t struct_size;
  redblue_const_tensor q, k, v, o, lse, d_o;
  redblue_tensor dq, dk, dv;
  redblue_const_tensor bias, slopes, sinks;
  redblue_tensor dbias, dsinks; /* shaped like bias and sinks */
  redblue_const_tensor dlse;    /* shaped like lse, where the problem has lse_gradient */
} redblue_backward_tensors;

/* The tensors of REDBLUE_SCORES and REDBLUE_WEIGHTS. s [batch, heads, n_q, n_k] gets the scores with all that the
 * problem does to them, -inf where a query does not see a key; or the weights exp(score - lse), 0 there. lse [batch,
 * heads, n_q, 1] is that of the forward pass, for weights only. */
typedef struct redblue_scores_tensors {
  size_t struct_size;
  redblue_const_tensor q, k, lse;
  redblue_tensor s;
  redblue_const_tensor bias, slopes;
} redblue_scores_tensors;

/* Your threads. `run` calls task(arg, i) once for each i < n and returns when all calls have returned. As many calls as
 * possible should run at the same time, but no call waits for another to start. `size` returns that number. */
typedef struct redblue_thread_pool {
  size_t struct_size;
  void* context;
  int (*size)(void* context);
  void (*run)(void* context, int n, void (*task)(void* arg, int i), void* arg);
} redblue_thread_pool;

typedef struct redblue_run_options {
  size_t struct_size;
  int32_t threads;                 /* 0: as many as the plan was made for */
  const redblue_thread_pool* pool; /* NULL: redblue's own threads */
  void* workspace;                 /* shares no memory with any tensor; NULL: the run allocates what it needs */
  size_t workspace_size;           /* bytes; any alignment */
} redblue_run_options;

typedef struct redblue_plan redblue_plan;

/* What a plan is and costs. Exact words over all batches and heads, with those of a forward pass that runs first; a
 * count above INT64_MAX is given as INT64_MAX, and no other count is. Strings live as long as the plan. */
typedef struct redblue_plan_info {
  size_t struct_size;
  const char* schedule;
  const char* forward_schedule; /* NULL: no forward pass runs first */
  const char* reason;           /* why it was chosen: one sentence */
  const char* bound_theorem;
  int64_t words_read, words_written;
  int64_t bound_words;     /* no schedule moves fewer */
  int64_t footprint_words; /* most words resident at a time */
  int64_t flops;           /* 2 x multiply-adds of products */
  double ratio;            /* words moved / bound_words, in bytes where these are minimised; 0 if bound_words is 0 */
  const char* tiling; /* "Br=64 Bc=16": the tile sizes by name; redblue_plan_tile gives one of them. Sequences of some
                       * shapes may have their own: redblue_plan_own_tiling; this is that of all others */
  int64_t footprint_bytes; /* most bytes resident at a time; 0: fast memory was not given in bytes */
  /* as given for the plan */
  int64_t multiple_of_queries, multiple_of_keys, multiple_of_features, reserve_words;
  int32_t double_buffer;
  /* Under a pattern of redblue_pattern_csr, _mask or _blocks: the words of its index that are read over all batches and
   * heads, and the most that are resident at a time. They are not among the words and the footprint above. */
  int64_t index_words_read, index_words_resident;
  int64_t bytes_moved; /* with those words; 0: fast memory was not given in bytes */
} redblue_plan_info;

/* The tile sizes of packed or padded sequences of one shape. A row at position p of such a sequence sees its keys from
 * p + lo to before p + hi, and the first `prefix`. */
typedef struct redblue_own_tiling {
  size_t struct_size;
  int64_t rows, keys;     /* of the sequence: queries of all heads that share K and V, and keys, that have a pair */
  int64_t lo, hi, prefix; /* INT64_MIN, INT64_MAX: this edge hides nothing */
  const char* tiling;     /* as redblue_plan_info.tiling; lives as long as the plan */
} redblue_own_tiling;

/* o [batch, heads, n_q, d_v] and lse [batch, heads, n_q, 1], the natural logarithm of the sum of weights, are those of
 * attention to some keys; more_o and more_lse, of other keys. All are REDBLUE_F32, or all REDBLUE_F64. */
typedef struct redblue_merge_tensors {
  size_t struct_size;
  int64_t batch, heads, n_q, d_v; /* default 1, 1, 0, 0 */
  redblue_tensor o, lse;
  redblue_const_tensor more_o, more_lse;
} redblue_merge_tensors;

/* What is proved of polynomial attention on given q, k and v, from their norms: docs/certificates.md. Each is the
 * largest of all heads, rounded up; INFINITY where nothing is proved. */
typedef struct redblue_certificate {
  size_t struct_size;
  double range;        /* no |scale q.k| is larger */
  double weight_error; /* each weight is within this share of itself */
  double output_error; /* each entry of o, in exact arithmetic, is within this many max|v| of its head of exact
                          attention */
  double rounding;     /* what the roundings of a run may add to that, in max|v| of its head */
} redblue_certificate;

/* The structs, for redblue_init. */
typedef int32_t redblue_struct;
enum {
  REDBLUE_STRUCT_PROBLEM = 0,
  REDBLUE_STRUCT_PLAN_OPTIONS = 1,
  REDBLUE_STRUCT_FORWARD_TENSORS = 2,
  REDBLUE_STRUCT_BACKWARD_TENSORS = 3,
  REDBLUE_STRUCT_SCORES_TENSORS = 4,
  REDBLUE_STRUCT_THREAD_POOL = 5,
  REDBLUE_STRUCT_RUN_OPTIONS = 6,
  REDBLUE_STRUCT_PLAN_INFO = 7,
  REDBLUE_STRUCT_OWN_TILING = 8,
  REDBLUE_STRUCT_CERTIFICATE = 9,
  REDBLUE_STRUCT_MERGE_TENSORS = 10,
  REDBLUE_STRUCT_LAYOUT = 11, /* this and the next two: of redblue_mpi.h */
  REDBLUE_STRUCT_RANKS_OPTIONS = 12,
  REDBLUE_STRUCT_RANKS_INFO = 13,
  REDBLUE_STRUCT_TANGENT_TENSORS = 14, /* of redblue_second.h, as the next */
  REDBLUE_STRUCT_SECOND_TENSORS = 15
};
/* Sets struct_size and the defaults of a struct of this kind, which has `size` bytes in your program: fewer than in the
 * library where your redblue.h is older. Refuses NULL, another kind, and a size that no version of redblue.h up to the
 * library's had; functions refuse such a struct, too. This is for languages that read no header. */
REDBLUE_API redblue_status redblue_init(redblue_struct kind, void* s, size_t size);
/* C and C++ programs call these. Each sets the defaults of its struct; fields without one become 0 or NULL. */
static inline void redblue_problem_init(redblue_problem* s) { redblue_init(REDBLUE_STRUCT_PROBLEM, s, sizeof *s); }
static inline void redblue_plan_options_init(redblue_plan_options* s) {
  redblue_init(REDBLUE_STRUCT_PLAN_OPTIONS, s, sizeof *s);
}
static inline void redblue_forward_tensors_init(redblue_forward_tensors* s) {
  redblue_init(REDBLUE_STRUCT_FORWARD_TENSORS, s, sizeof *s);
}
static inline void redblue_backward_tensors_init(redblue_backward_tensors* s) {
  redblue_init(REDBLUE_STRUCT_BACKWARD_TENSORS, s, sizeof *s);
}
static inline void redblue_merge_tensors_init(redblue_merge_tensors* s) {
  redblue_init(REDBLUE_STRUCT_MERGE_TENSORS, s, sizeof *s);
}
static inline void redblue_scores_tensors_init(redblue_scores_tensors* s) {
  redblue_init(REDBLUE_STRUCT_SCORES_TENSORS, s, sizeof *s);
}
static inline void redblue_thread_pool_init(redblue_thread_pool* s) {
  redblue_init(REDBLUE_STRUCT_THREAD_POOL, s, sizeof *s);
}
static inline void redblue_run_options_init(redblue_run_options* s) {
  redblue_init(REDBLUE_STRUCT_RUN_OPTIONS, s, sizeof *s);
}
static inline void redblue_plan_info_init(redblue_plan_info* s) {
  redblue_init(REDBLUE_STRUCT_PLAN_INFO, s, sizeof *s);
}
static inline void redblue_own_tiling_init(redblue_own_tiling* s) {
  redblue_init(REDBLUE_STRUCT_OWN_TILING, s, sizeof *s);
}
static inline void redblue_certificate_init(redblue_certificate* s) {
  redblue_init(REDBLUE_STRUCT_CERTIFICATE, s, sizeof *s);
}

/* "MAJOR.MINOR.PATCH" */
REDBLUE_API const char* redblue_version(void);
/* The name of a redblue_status. */
REDBLUE_API const char* redblue_status_string(int status);
/* The message of the last call of this thread that failed; "" if none has. Valid until the next call fails. */
REDBLUE_API const char* redblue_last_error(void);

/* The strides of a dense tensor of these sizes [batch, heads, positions, features], whose dimensions lie in memory in
 * the order that `layout` names, outermost first: "bhsd", "bshd", "hsd", "shd" or "sd" (b batch, h heads, s or n
 * positions, d features); what it leaves out is of size 1. For lse and tensors of one number for each position,
 * features is 1. */
REDBLUE_API redblue_status redblue_strides(const char* layout, const int64_t sizes[4], int64_t strides[4]);

/* Makers of patterns between n_q queries and n_k keys, 1 to 2^31 of each; a problem that takes one has as many. The
 * caller destroys *pattern, any time after the plans under it are made. If a maker fails, *pattern is NULL:
 * REDBLUE_INVALID_ARGUMENT names the number that makes no pattern. Arrays are only read, and only in the call.
 *
 * Compressed sparse rows: query i sees the keys indices[indptr[i]] to indices[indptr[i + 1] - 1], in ascending order,
 * each once. indptr has n_q + 1 numbers, from 0, and indices indptr[n_q]; NULL if that is 0. */
REDBLUE_API redblue_status redblue_pattern_csr(int64_t n_q, int64_t n_k, const int64_t* indptr, const int64_t* indices,
                                               redblue_pattern** pattern);
/* seen[i n_k + j] is not 0 where query i sees key j. */
REDBLUE_API redblue_status redblue_pattern_mask(int64_t n_q, int64_t n_k, const uint8_t* seen,
                                                redblue_pattern** pattern);
/* Blocks of `rows` queries and `cols` keys, the last of them smaller where they do not divide n_q and n_k:
 * seen[I ceil(n_k / cols) + J] is not 0 where the queries of block I see the keys of block J. */
REDBLUE_API redblue_status redblue_pattern_blocks(int64_t n_q, int64_t n_k, int64_t rows, int64_t cols,
                                                  const uint8_t* seen, redblue_pattern** pattern);
/* In the patterns below query i stands at the position i + offset among the keys. With offset n_k - n_q the last query
 * stands at the last key, as by default in a problem; its causal_offset does not count here.
 *
 * Longformer (Beltagy et al. 2020, arXiv 2004.05150): keys at the distances k step, -left <= k <= right, of the query's
 * position (-1: no edge), where step is 1 or more; all queries see the first `globals` keys, and queries at the first
 * `globals` positions see all keys. With 0 globals a window, dilated where step > 1. */
REDBLUE_API redblue_status redblue_pattern_longformer(int64_t n_q, int64_t n_k, int64_t offset, int64_t left,
                                                      int64_t right, int64_t globals, int64_t step,
                                                      redblue_pattern** pattern);
/* BigBird (Zaheer et al. 2020, arXiv 2007.14062) in blocks of `block` queries and keys: `window` blocks on either side
 * of the query's own, the first `globals` blocks as in Longformer, and `randoms` other blocks for each block of
 * queries, drawn from the seed, 0 to 2^53 (fewer where there are not as many). */
REDBLUE_API redblue_status redblue_pattern_big_bird(int64_t n_q, int64_t n_k, int64_t offset, int64_t block,
                                                    int64_t window, int64_t globals, int64_t randoms, int64_t seed,
                                                    redblue_pattern** pattern);
/* Sparse Transformer (Child et al. 2019, arXiv 1904.10509), both causal. Strided: the last `stride` keys up to the
 * query's own, and every stride-th before them. Fixed: keys of the query's own block of `stride`, and the last
 * `summary` of every block before. */
REDBLUE_API redblue_status redblue_pattern_strided(int64_t n_q, int64_t n_k, int64_t offset, int64_t stride,
                                                   redblue_pattern** pattern);
REDBLUE_API redblue_status redblue_pattern_fixed(int64_t n_q, int64_t n_k, int64_t offset, int64_t stride,
                                                 int64_t summary, redblue_pattern** pattern);
/* What both of two patterns show, or what one of them shows. Both are between as many queries and as many keys, and are
 * left as they are. */
REDBLUE_API redblue_status redblue_pattern_intersected(const redblue_pattern* a, const redblue_pattern* b,
                                                       redblue_pattern** pattern);
REDBLUE_API redblue_status redblue_pattern_united(const redblue_pattern* a, const redblue_pattern* b,
                                                  redblue_pattern** pattern);
/* Does nothing if pattern is NULL. Plans keep what they need of it. */
REDBLUE_API void redblue_pattern_destroy(redblue_pattern* pattern);

/* The caller destroys *plan. If this fails, *plan is NULL. */
REDBLUE_API redblue_status redblue_plan_create(const redblue_problem* problem, const redblue_plan_options* options,
                                               redblue_plan** plan);
/* Does nothing if plan is NULL. */
REDBLUE_API void redblue_plan_destroy(redblue_plan* plan);
REDBLUE_API redblue_status redblue_plan_describe(const redblue_plan* plan, redblue_plan_info* info);
/* The size of the tile that is called `name` in redblue_plan_info.tiling. */
REDBLUE_API redblue_status redblue_plan_tile(const redblue_plan* plan, const char* name, int64_t* size);
/* How many shapes of sequences have tiles of their own, 0 if plan is NULL; and those of one of them, from 0 on. */
REDBLUE_API int64_t redblue_plan_own_tilings(const redblue_plan* plan);
REDBLUE_API redblue_status redblue_plan_own_tiling(const redblue_plan* plan, int64_t index, redblue_own_tiling* own);

/* The bytes that the run with these arguments takes beside the tensors: fast memory of each thread, workspace, staging
 * buffers, outputs held in the compute type. They do not include bookkeeping on the heap: at most 10 KiB and 12 KiB
 * more for each thread and, while the run checks that tensors do not overlap, 16 bytes for each row of two tensors that
 * interleave in memory, and under patterns lists of their runs of keys, a few times what a pattern takes for each
 * thread. Reads no data; of the data pointers only that of lse matters (is it NULL?), and options->workspace is
 * ignored. tensors NULL: contiguous ones of the plan's dtype, with lse if it is required. The first call, or the first
 * run, for tensors of one kind walks through the operations without computing. That takes at most the time of a run,
 * and little time unless tiles are very small. Where a run takes more than the machine has, there is no walk: *bytes is
 * then less than the run takes, and more than the machine has. */
REDBLUE_API redblue_status redblue_forward_workspace(const redblue_plan* plan, const redblue_forward_tensors* tensors,
                                                     const redblue_run_options* options, size_t* bytes);
REDBLUE_API redblue_status redblue_backward_workspace(const redblue_plan* plan, const redblue_backward_tensors* tensors,
                                                      const redblue_run_options* options, size_t* bytes);
REDBLUE_API redblue_status redblue_scores_workspace(const redblue_plan* plan, const redblue_scores_tensors* tensors,
                                                    const redblue_run_options* options, size_t* bytes);

/* Runs the plan. options NULL: the defaults. Outputs are undefined if this fails. The same bits for any
 * number of threads. */
REDBLUE_API redblue_status redblue_forward(const redblue_plan* plan, const redblue_forward_tensors* tensors,
                                           const redblue_run_options* options);
REDBLUE_API redblue_status redblue_backward(const redblue_plan* plan, const redblue_backward_tensors* tensors,
                                            const redblue_run_options* options);

/* The certificate of a problem with an approximate_degree, or of one that is approximate with polynomials of each row:
 * nothing is proved of other methods, REDBLUE_UNSUPPORTED. compute: the arithmetic of the run, REDBLUE_F32 or
 * REDBLUE_F64. It reads the tensors q, k and v, and the dtype of o. A NaN or an infinity in them is refused. */
REDBLUE_API redblue_status redblue_certify(const redblue_problem* problem, const redblue_forward_tensors* tensors,
                                           redblue_dtype compute, redblue_certificate* certificate);
/* Sets *degree and *range to the approximate_degree, the least, and the approximate_range for which redblue_certify
 * gives an output_error of at most `tolerance`, above 0 and below 1; both to 0 where no degree up to 12 does. It
 * ignores the degree and the range that the problem has. It does not compare words: plans for both do, with
 * redblue_plan_describe. */
REDBLUE_API redblue_status redblue_least_degree(const redblue_problem* problem, const redblue_forward_tensors* tensors,
                                                redblue_dtype compute, double tolerance, int64_t* degree,
                                                double* range);

/* Writes to o and lse what attention to both sets of keys gives. It needs no plan; options as of a run, without
 * workspace. */
REDBLUE_API redblue_status redblue_merge(const redblue_merge_tensors* tensors, const redblue_run_options* options);

/* Runs a plan for REDBLUE_SCORES or for REDBLUE_WEIGHTS. */
REDBLUE_API redblue_status redblue_scores(const redblue_plan* plan, const redblue_scores_tensors* tensors,
                                          const redblue_run_options* options);

#ifdef __cplusplus
}
#endif

#include "redblue_second.h"

#endif /* REDBLUE_H */
