#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>

#include "redblue.h"
#include "redblue/language/word_type.hpp"
#include "redblue/masks/patterns.hpp"
#ifndef REDBLUE_NO_METHODS
#include "redblue/methods/certificate.hpp"
#endif
#include "redblue/planner/plan_here.hpp"
#include "redblue/planner/shapes.hpp"
#include "redblue/runtime/backend.hpp"
#include "redblue/runtime/run.hpp"
#include "redblue/runtime/storage_of.hpp"
#include "redblue/version.hpp"

/// The C interface: redblue.h in terms of attention.hpp.

using namespace redblue;

struct redblue_plan {
  plan::Plan plan;
  DType compute, dtype;
  int threads;
  mutable RunMemo memo;
  // Strings that end in a null byte, as C wants them.
  std::string schedule, forward_schedule, theorem, tiling;
  std::vector<std::pair<schedule::CoreShape, std::string>> own_tilings;
};

struct redblue_pattern {
  std::shared_ptr<const RunLists> rows;
  index_t n_k = 0;
};

namespace {

thread_local std::string last_error;         // NOLINT: a message per thread is what the interface promises
thread_local bool message_was_lost = false;  // NOLINT

/// Something wrong with the call itself.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

redblue_status fail(redblue_status status, const char* message) noexcept {
  try {
    last_error = message;
    message_was_lost = false;
  } catch (...) {
    message_was_lost = true;
  }
  return status;
}

/// Runs f; an exception becomes a status.
template <class F>
redblue_status guarded(const F& f) noexcept {
  try {
    f();
    return REDBLUE_OK;
  } catch (const InvalidProblem& e) {
    return fail(REDBLUE_INVALID_ARGUMENT, e.what());
  } catch (const InvalidArgument& e) {
    return fail(REDBLUE_INVALID_ARGUMENT, e.what());
  } catch (const IoError& e) {  // the only file is the one that hardware_file names
    return fail(REDBLUE_INVALID_ARGUMENT, e.what());
  } catch (const Unsupported& e) {
    return fail(REDBLUE_UNSUPPORTED, e.what());
  } catch (const CapacityError& e) {
    return fail(REDBLUE_FAST_MEMORY_TOO_SMALL, e.what());
  } catch (const MemoryError& e) {
    return fail(REDBLUE_NOT_ENOUGH_MEMORY, e.what());
  } catch (const std::bad_alloc&) {
    return fail(REDBLUE_NOT_ENOUGH_MEMORY, "out of memory");
  } catch (const std::exception& e) {
    return fail(REDBLUE_INTERNAL_ERROR, e.what());
  } catch (...) {
    return fail(REDBLUE_INTERNAL_ERROR, "an exception that is no std::exception");
  }
}

template <class T>
void require_pointer(const T* pointer, const char* what) {
  if (pointer == nullptr) throw InvalidArgument(fmt::format("{} is NULL", what));
}

/// The caller's struct, if it is of this version of redblue.h.
template <class S>
const S& checked(const S* s, const char* type) {
  require_pointer(s, type);
  if (s->struct_size != sizeof(S))
    throw InvalidArgument(
        fmt::format("struct_size of {} is {}, this redblue ({}) knows {}: initialise it with the "
                    "macro of the redblue.h that belongs to this library",
                    type, s->struct_size, kVersion, sizeof(S)));
  return *s;
}

/// What the caller gives, of an earlier size or of today's; `all` holds the defaults.
template <class S>
S given(const S* s, S all, std::initializer_list<std::size_t> earlier, const char* type) {
  if (s == nullptr || std::find(earlier.begin(), earlier.end(), s->struct_size) == earlier.end())
    return checked(s, type);
  std::memcpy(&all, s, s->struct_size);
  return all;
}

redblue_forward_tensors given_tensors(const redblue_forward_tensors* t) {
  return given(t, redblue_forward_tensors REDBLUE_FORWARD_TENSORS_INIT, {offsetof(redblue_forward_tensors, bias)},
               "redblue_forward_tensors");
}
redblue_backward_tensors given_tensors(const redblue_backward_tensors* t) {
  return given(t, redblue_backward_tensors REDBLUE_BACKWARD_TENSORS_INIT, {offsetof(redblue_backward_tensors, bias)},
               "redblue_backward_tensors");
}

const redblue_scores_tensors& given_tensors(const redblue_scores_tensors* t) {
  return checked(t, "redblue_scores_tensors");
}

DType dtype_of(redblue_dtype t, const char* what) {
  switch (t) {
    case REDBLUE_F64:
      return DType::f64;
    case REDBLUE_F32:
      return DType::f32;
    case REDBLUE_F16:
      return DType::f16;
    case REDBLUE_BF16:
      return DType::bf16;
    case REDBLUE_BOOL:
      return DType::boolean;
    default:
      throw InvalidArgument(fmt::format("{} = {} is no redblue_dtype", what, t));
  }
}

/// Of numbers: only a bias may be a mask.
DType dtype_of_numbers(redblue_dtype t, const char* what) {
  const DType dtype = dtype_of(t, what);
  if (dtype == DType::boolean)
    throw InvalidArgument(fmt::format("{} = {}: only the tensor bias may be REDBLUE_BOOL", what, t));
  return dtype;
}

Patterns patterns_of(const redblue_problem& p) {
  if (p.patterns == nullptr ? p.n_patterns != 0 : p.n_patterns < 1)
    throw InvalidArgument(
        fmt::format("n_patterns = {}: {}", p.n_patterns,
                    p.patterns == nullptr ? "patterns is NULL: give them, or 0" : "give their number, with patterns"));
  std::vector<std::shared_ptr<const RunLists>> list;
  for (int64_t k = 0; k < p.n_patterns; ++k) {
    const redblue_pattern* pattern = p.patterns[k];
    if (pattern == nullptr) throw InvalidArgument(fmt::format("patterns[{}] is NULL", k));
    if (pattern->n_k != p.n_k)
      throw InvalidArgument(
          fmt::format("pattern {} is of {} keys and the problem has n_k = {}", k, pattern->n_k, p.n_k));
    list.push_back(pattern->rows);
  }
  return list;
}

PatternOrder order_of(const redblue_problem& p) {
  if (p.order != REDBLUE_ORDER_AUTOMATIC && p.n_patterns == 0)
    throw InvalidArgument(fmt::format("order = {} is of patterns, and n_patterns = 0", p.order));
  switch (p.order) {
    case REDBLUE_ORDER_AUTOMATIC:
    case REDBLUE_ORDER_NATURAL:
      return PatternOrder::natural;
    case REDBLUE_ORDER_RCM:
      return PatternOrder::rcm;
    case REDBLUE_ORDER_JACCARD:
      return PatternOrder::jaccard;
    case REDBLUE_ORDER_IN_PLACE:
      return PatternOrder::in_place;
    default:
      throw InvalidArgument(fmt::format("order = {} is no redblue_pattern_order", p.order));
  }
}

void approximate(const redblue_problem& p, Problem& result) {
  if (p.approximate != nullptr) result.approximate(p.approximate);
  if (p.approximate_degree == 0 && p.approximate_range == 0) return;
  if (p.approximate != nullptr)
    throw InvalidArgument(fmt::format("approximate = \"{}\" and approximate_degree = {}: give one of them",
                                      p.approximate, p.approximate_degree));
  if (p.approximate_degree == 0)
    throw InvalidArgument(
        fmt::format("approximate_range = {} and approximate_degree = 0: give a degree, 1 or more, too, or neither",
                    p.approximate_range));
  result.approximate(fmt::format("{}:{}", p.approximate_degree, p.approximate_range));
}

Operation operation_of(redblue_operation operation) {
  switch (operation) {
    case REDBLUE_FORWARD:
      return Operation::forward;
    case REDBLUE_BACKWARD:
      return Operation::backward;
    case REDBLUE_SCORES:
      return Operation::scores;
    case REDBLUE_WEIGHTS:
      return Operation::weights;
    default:
      throw InvalidArgument(fmt::format(
          "operation = {}: give REDBLUE_FORWARD, REDBLUE_BACKWARD, REDBLUE_SCORES or REDBLUE_WEIGHTS", operation));
  }
}

Problem problem_of(const redblue_problem& p) {
  Problem result;
  result.op = operation_of(p.operation);
  result.batch = p.batch;
  result.heads = p.heads;
  if (p.kv_heads != 0) result.kv_heads = p.kv_heads;
  result.n_q = p.n_q;
  result.n_k = p.n_k;
  result.d = p.d;
  result.d_v = p.d_v != 0 ? p.d_v : p.d;
  result.causal = p.causal != 0;
  if (p.has_causal_offset != 0) {
    if (!result.causal && p.has_window_left == 0 && p.has_window_right == 0 && p.alibi == 0 && p.dilation < 2)
      throw InvalidArgument("has_causal_offset is set and nothing counts from it: set causal, a window or alibi too");
    result.causal_offset = p.causal_offset;
  }
  if (p.has_window_left != 0) result.window_left = p.window_left;
  if (p.has_window_right != 0) result.window_right = p.window_right;
  result.prefix = p.prefix;
  if (p.dilation != 0) result.dilation = p.dilation;
  if (p.has_scale != 0) result.scale = p.scale;
  result.softcap = p.softcap;
  if (p.has_bias != 0) result.bias = {p.bias_shape[0], p.bias_shape[1], p.bias_shape[2], p.bias_shape[3]};
  result.dropout = p.dropout;
  result.seed = p.seed;
  result.alibi = p.alibi != 0;
  result.sinks = p.sinks != 0;
  result.bias_gradient = p.bias_gradient != 0;
  result.sinks_gradient = p.sinks_gradient != 0;
  approximate(p, result);
  const auto list = [](const int64_t* numbers, int64_t count) {
    return numbers == nullptr ? std::vector<index_t>() : std::vector<index_t>(numbers, numbers + count);
  };
  const bool packed = p.cu_seqlens_q != nullptr || p.cu_seqlens_k != nullptr;
  if (packed ? p.sequences < 1 : p.sequences != 0)
    throw InvalidArgument(fmt::format("sequences = {}: {}", p.sequences,
                                      packed ? "give their number, with cu_seqlens_q and cu_seqlens_k"
                                             : "cu_seqlens_q and cu_seqlens_k are NULL: give them, or 0 sequences"));
  result.cu_seqlens_q = list(p.cu_seqlens_q, p.sequences + 1);
  result.cu_seqlens_k = list(p.cu_seqlens_k, p.sequences + 1);
  const int64_t lengths = packed ? p.sequences : std::max<int64_t>(0, p.batch);
  result.seqused_q = list(p.seqused_q, lengths);
  result.seqused_k = list(p.seqused_k, lengths);
  result.patterns = patterns_of(p);
  result.order = order_of(p);
  result.lse_required = p.lse_required != 0;
  result.forward_given = p.forward_missing == 0;
  return result;
}

int threads_of(int32_t threads) {
  if (threads < 0) throw InvalidArgument(fmt::format("threads = {}: give a number from 1 on, or 0", threads));
  return threads;
}

/// C or const C tensor.
template <class T>
Tensor tensor_of(const T& t, const std::array<index_t, 4>& shape, SlowArray name) {
  const DType dtype = dtype_of(t.dtype, "dtype");
  auto* data = const_cast<void*>(static_cast<const void*>(t.data));  // what is an input is never written
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) != 0)
    throw InvalidArgument(
        fmt::format("tensor {} is not aligned to its elements ({})", tensor_name(name), name_of(dtype)));
  const int64_t* s = t.strides;
  if (s[0] == 0 && s[1] == 0 && s[2] == 0 && s[3] == 0) return {data, dtype, shape};
  index_t reach = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    index_t last = 0;
    if (s[i] == INT64_MIN || __builtin_mul_overflow(shape[i] - 1, std::abs(s[i]), &last) ||
        __builtin_add_overflow(reach, last, &reach) || reach >= index_t{1} << 60)
      throw InvalidArgument(fmt::format("stride {} of tensor {} is too large", s[i], tensor_name(name)));
  }
  return {data, dtype, shape, {s[0], s[1], s[2], s[3]}};
}

struct Named {
  SlowArray array;
  const redblue_const_tensor* input;  // one of the two
  const redblue_tensor* output;
};

template <class List>
Tensors tensors_of(const Problem& p, const List& list) {
  const Shapes shapes(p);
  Tensors result;
  for (const auto& [array, input, output] : list) {
    const auto shape = shapes[array];
    result[array] = input != nullptr ? tensor_of(*input, shape, array) : tensor_of(*output, shape, array);
  }
  return result;
}

Tensors tensors_of(const Problem& p, const redblue_forward_tensors& t) {
  return tensors_of(p, std::to_array<Named>({{SlowArray::Q, &t.q, nullptr},
                                             {SlowArray::K, &t.k, nullptr},
                                             {SlowArray::V, &t.v, nullptr},
                                             {SlowArray::O, nullptr, &t.o},
                                             {SlowArray::lse, nullptr, &t.lse},
                                             {SlowArray::bias, &t.bias, nullptr},
                                             {SlowArray::slopes, &t.slopes, nullptr},
                                             {SlowArray::sinks, &t.sinks, nullptr}}));
}

Tensors tensors_of(const Problem& p, const redblue_backward_tensors& t) {
  return tensors_of(p, std::to_array<Named>({{SlowArray::Q, &t.q, nullptr},
                                             {SlowArray::K, &t.k, nullptr},
                                             {SlowArray::V, &t.v, nullptr},
                                             {SlowArray::O, &t.o, nullptr},
                                             {SlowArray::lse, &t.lse, nullptr},
                                             {SlowArray::dO, &t.d_o, nullptr},
                                             {SlowArray::dQ, nullptr, &t.dq},
                                             {SlowArray::dK, nullptr, &t.dk},
                                             {SlowArray::dV, nullptr, &t.dv},
                                             {SlowArray::bias, &t.bias, nullptr},
                                             {SlowArray::slopes, &t.slopes, nullptr},
                                             {SlowArray::sinks, &t.sinks, nullptr},
                                             {SlowArray::dBias, nullptr, &t.dbias},
                                             {SlowArray::dSinks, nullptr, &t.dsinks}}));
}

Tensors tensors_of(const Problem& p, const redblue_scores_tensors& t) {
  const bool weights = p.op == Operation::weights;
  Tensors result = tensors_of(p, std::to_array<Named>({{SlowArray::Q, &t.q, nullptr},
                                                       {SlowArray::K, &t.k, nullptr},
                                                       {weights ? SlowArray::P : SlowArray::S, nullptr, &t.s},
                                                       {SlowArray::bias, &t.bias, nullptr},
                                                       {SlowArray::slopes, &t.slopes, nullptr}}));
  if (weights) result[SlowArray::lse] = tensor_of(t.lse, shape_of(p, SlowArray::lse), SlowArray::lse);
  return result;
}

/// `op` is the operation that a function is named after.
void require_operation(const redblue_plan* plan, Operation op) {
  require_pointer(plan, "plan");
  const Operation made_for = plan->plan.problem.op,
                  called = made_for == Operation::weights ? Operation::scores : made_for;
  if (called != op)
    throw InvalidArgument(fmt::format("this plan is for {}: call redblue_{} with it", redblue::name_of(made_for),
                                      redblue::name_of(called)));
}

/// The count, or INT64_MAX where it is larger.
int64_t saturated(Words count) { return std::min(count, Words(INT64_MAX)).to_index(); }

std::size_t size_from(Words bytes) { return static_cast<std::size_t>(bytes.to_index()); }

/// The caller's thread pool.
class CallersPool : public ThreadPool {
 public:
  explicit CallersPool(const redblue_thread_pool& pool) : pool_(pool) {
    if (pool.size == nullptr || pool.run == nullptr)
      throw InvalidArgument("redblue_thread_pool needs both functions, size and run");
    size_ = pool.size(pool.context);
    if (size_ < 1) throw InvalidArgument(fmt::format("the thread pool has size {}: it must have 1 or more", size_));
  }
  int size() const override { return size_; }
  void run(int n, const std::function<void(int)>& task) override {
    Job job{task, n, 0};
    pool_.run(pool_.context, n, &run_task, &job);
    if (job.done != n) throw Error(fmt::format("the thread pool returned after {} of {} tasks", job.done.load(), n));
  }

 private:
  struct Job {
    const std::function<void(int)>& task;
    int n;
    std::atomic<int> done;
  };
  static void run_task(void* arg, int i) {
    Job& job = *static_cast<Job*>(arg);
    if (i < 0 || i >= job.n) return;  // run() then misses one
    job.task(i);
    ++job.done;
  }

  redblue_thread_pool pool_;
  int size_;
};

/// The options of a run, but for its memory, and the pool that they point to.
struct Options {
  RunOptions run;
  std::optional<CallersPool> pool;

  Options(const redblue_plan& plan, const redblue_run_options* given) {
    run.compute = plan.compute;
    run.threads = plan.threads;
    if (given == nullptr) return;
    checked(given, "redblue_run_options");
    if (threads_of(given->threads) > 0) run.threads = given->threads;
    if (given->pool != nullptr) run.pool = &pool.emplace(checked(given->pool, "redblue_thread_pool"));
  }
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;
};

template <class T>
redblue_status workspace(const redblue_plan* plan, const T* tensors, Operation op,
                         const redblue_run_options* run_options, std::size_t* bytes) {
  return guarded([&] {
    require_operation(plan, op);
    require_pointer(bytes, "bytes");
    *bytes = 0;
    const Problem& p = plan->plan.problem;
    const Options options(*plan, run_options);
    Tensors described;
    if (tensors == nullptr) {
      described = contiguous_tensors(p, plan->dtype);
    } else {
      described = tensors_of(p, given_tensors(tensors));
      if (op == Operation::forward && described[SlowArray::lse].data == nullptr) described[SlowArray::lse] = {};
    }
    *bytes = size_from(run_bytes(plan->plan, described, options.run, plan->memo));
  });
}

template <class T>
redblue_status execute(const redblue_plan* plan, const T* tensors, Operation op,
                       const redblue_run_options* run_options) {
  return guarded([&] {
    require_operation(plan, op);
    Options options(*plan, run_options);
    if (run_options != nullptr) {
      if (run_options->workspace == nullptr && run_options->workspace_size > 0)
        throw InvalidArgument(fmt::format("workspace is NULL and workspace_size = {}", run_options->workspace_size));
      options.run.memory = {static_cast<std::byte*>(run_options->workspace), run_options->workspace_size};
    }
    run(plan->plan, tensors_of(plan->plan.problem, given_tensors(tensors)), options.run, plan->memo);
  });
}

}  // namespace

namespace {

/// Programs that were compiled before a struct grew give its old size: what they do not know has its default.
constexpr std::size_t kFirstOptions = offsetof(redblue_plan_options, fast_memory_bytes),
                      kFirstInfo = offsetof(redblue_plan_info, tiling),
                      kInfoWithoutIndex = offsetof(redblue_plan_info, index_words_read),
                      kFirstProblem = offsetof(redblue_problem, window_left);

redblue_problem problem_given(const redblue_problem* problem) {
  return given(problem, redblue_problem REDBLUE_PROBLEM_INIT,
               {kFirstProblem, offsetof(redblue_problem, softcap), offsetof(redblue_problem, sequences),
                offsetof(redblue_problem, patterns), offsetof(redblue_problem, approximate_degree),
                offsetof(redblue_problem, dilation)},
               "redblue_problem");
}

#ifndef REDBLUE_NO_METHODS
/// f(inputs, arithmetic, type of o) of the tensors of a forward problem.
template <class F>
Certificate with_tensors(const Problem& p, const redblue_forward_tensors* tensors, redblue_dtype compute, const F& f) {
  p.validate();
  if (p.op != Operation::forward)
    throw Unsupported(fmt::format("operation {}: certificates are of REDBLUE_FORWARD", redblue::name_of(p.op)));
  const Tensors t = tensors_of(p, given_tensors(tensors));
  return f(Inputs{t[SlowArray::Q], t[SlowArray::K], t[SlowArray::V]}, dtype_of_numbers(compute, "compute"),
           t[SlowArray::O].dtype);
}
#endif

redblue_plan_options options_given(const redblue_plan_options* options) {
  return given(options, redblue_plan_options REDBLUE_PLAN_OPTIONS_INIT, {kFirstOptions}, "redblue_plan_options");
}

plan::Options options_of(const redblue_plan_options& given, Operation op, DType compute, DType dtype) {
  if (given.fast_memory_bytes != 0 && given.fast_memory_words != 0)
    throw InvalidArgument(fmt::format("fast_memory_words = {} and fast_memory_bytes = {}: give one of them",
                                      given.fast_memory_words, given.fast_memory_bytes));
  if (given.fast_memory_bytes != 0 && given.objective == REDBLUE_MINIMISE_TIME)
    throw InvalidArgument(fmt::format("fast_memory_bytes = {} is for REDBLUE_MINIMISE_WORDS", given.fast_memory_bytes));
  plan::Options o;
  o.M = given.fast_memory_words;
  if (given.fast_memory_bytes != 0)
    o.memory = plan::ByteMemory{given.fast_memory_bytes, plan::residence_of(op, dtype, word_of(compute))};
  o.multiple = {given.multiple_of_queries, given.multiple_of_keys, given.multiple_of_features};
  o.reserve = given.reserve_words;
  o.double_buffer = given.double_buffer != 0;
  if (given.schedule != nullptr) o.schedule = given.schedule;
  return o;
}

/// A number of a pattern and what it is called.
struct PatternNumber {
  const char* name;
  int64_t value;
};

void hand_over(RunLists rows, index_t n_k, redblue_pattern** pattern) {
  auto result = std::make_unique<redblue_pattern>();
  result->rows = std::make_shared<const RunLists>(std::move(rows));
  result->n_k = n_k;
  *pattern = result.release();
}

/// Makes *pattern of the lists that make() returns, once no number is so large that sums of them overflow.
template <class Make>
redblue_status create_pattern(int64_t n_q, int64_t n_k, std::initializer_list<PatternNumber> numbers,
                              redblue_pattern** pattern, const Make& make) noexcept {
  return guarded([&] {
    require_pointer(pattern, "pattern");
    *pattern = nullptr;
    for (const auto& [name, value] : {PatternNumber{"n_q", n_q}, PatternNumber{"n_k", n_k}})
      if (value < 1 || value > int64_t{1} << 31)
        throw InvalidArgument(fmt::format("{} = {}: patterns are for 1 to 2^31 queries and keys", name, value));
    for (const auto& [name, value] : numbers)
      if (constexpr auto kMost = int64_t{1} << 48; value < -kMost || value > kMost)
        throw InvalidArgument(fmt::format("{} = {} is out of range: at most 2^48 either way", name, value));
    hand_over(make(), n_k, pattern);
  });
}

/// Makes *pattern of two others.
redblue_status join_patterns(const redblue_pattern* a, const redblue_pattern* b, redblue_pattern** pattern,
                             RunLists (*join)(const RunLists&, const RunLists&)) noexcept {
  return guarded([&] {
    require_pointer(pattern, "pattern");
    *pattern = nullptr;
    require_pointer(a, "a");
    require_pointer(b, "b");
    if (a->rows->size() != b->rows->size() || a->n_k != b->n_k)
      throw InvalidArgument(
          fmt::format("a is between {} queries and {} keys, b between {} and {}: give patterns of "
                      "the same sizes",
                      a->rows->size(), a->n_k, b->rows->size(), b->n_k));
    hand_over(join(*a->rows, *b->rows), a->n_k, pattern);
  });
}

}  // namespace

extern "C" {

const char* redblue_version() { return kVersion.data(); }

const char* redblue_status_string(int status) {
  switch (status) {
    case REDBLUE_OK:
      return "ok";
    case REDBLUE_INVALID_ARGUMENT:
      return "invalid argument";
    case REDBLUE_UNSUPPORTED:
      return "unsupported";
    case REDBLUE_FAST_MEMORY_TOO_SMALL:
      return "fast memory too small";
    case REDBLUE_NOT_ENOUGH_MEMORY:
      return "not enough memory";
    case REDBLUE_INTERNAL_ERROR:
      return "internal error";
    default:
      return "no redblue_status";
  }
}

const char* redblue_last_error() { return message_was_lost ? "out of memory" : last_error.c_str(); }

redblue_status redblue_pattern_csr(int64_t n_q, int64_t n_k, const int64_t* indptr, const int64_t* indices,
                                   redblue_pattern** pattern) {
  return create_pattern(n_q, n_k, {}, pattern, [&] {
    require_pointer(indptr, "indptr");
    const int64_t count = indptr[n_q];
    if (count < 0) throw InvalidArgument(fmt::format("indptr ends with {}: it ends with the number of indices", count));
    if (count > 0) require_pointer(indices, "indices");
    return patterns::of_csr({n_q, n_k}, {indptr, static_cast<std::size_t>(n_q) + 1},
                            {indices, static_cast<std::size_t>(count)});
  });
}

redblue_status redblue_pattern_mask(int64_t n_q, int64_t n_k, const uint8_t* seen, redblue_pattern** pattern) {
  return redblue_pattern_blocks(n_q, n_k, 1, 1, seen, pattern);
}

redblue_status redblue_pattern_blocks(int64_t n_q, int64_t n_k, int64_t rows, int64_t cols, const uint8_t* seen,
                                      redblue_pattern** pattern) {
  return create_pattern(n_q, n_k, {{"rows", rows}, {"cols", cols}}, pattern, [&] {
    require_pointer(seen, "seen");
    for (const auto& [name, size] : {PatternNumber{"rows", rows}, PatternNumber{"cols", cols}})
      if (size < 1) throw InvalidArgument(fmt::format("{} = {}: give 1 or more", name, size));
    const auto blocks = static_cast<std::size_t>(ceil_div(n_q, rows) * ceil_div(n_k, cols));
    return patterns::of_blocks({n_q, n_k}, rows, cols, {seen, blocks});
  });
}

redblue_status redblue_pattern_longformer(int64_t n_q, int64_t n_k, int64_t offset, int64_t left, int64_t right,
                                          int64_t globals, int64_t step, redblue_pattern** pattern) {
  return create_pattern(n_q, n_k,
                        {{"offset", offset}, {"left", left}, {"right", right}, {"globals", globals}, {"step", step}},
                        pattern, [&] { return patterns::longformer({n_q, n_k, offset}, left, right, globals, step); });
}

redblue_status redblue_pattern_big_bird(int64_t n_q, int64_t n_k, int64_t offset, int64_t block, int64_t window,
                                        int64_t globals, int64_t randoms, int64_t seed, redblue_pattern** pattern) {
  return create_pattern(
      n_q, n_k, {{"offset", offset}, {"block", block}, {"window", window}, {"globals", globals}, {"randoms", randoms}},
      pattern, [&] { return patterns::big_bird({n_q, n_k, offset}, {block, window, globals, randoms, seed}); });
}

redblue_status redblue_pattern_strided(int64_t n_q, int64_t n_k, int64_t offset, int64_t stride,
                                       redblue_pattern** pattern) {
  return create_pattern(n_q, n_k, {{"offset", offset}, {"stride", stride}}, pattern,
                        [&] { return patterns::strided({n_q, n_k, offset}, stride); });
}

redblue_status redblue_pattern_fixed(int64_t n_q, int64_t n_k, int64_t offset, int64_t stride, int64_t summary,
                                     redblue_pattern** pattern) {
  return create_pattern(n_q, n_k, {{"offset", offset}, {"stride", stride}, {"summary", summary}}, pattern,
                        [&] { return patterns::fixed({n_q, n_k, offset}, stride, summary); });
}

redblue_status redblue_pattern_intersected(const redblue_pattern* a, const redblue_pattern* b,
                                           redblue_pattern** pattern) {
  return join_patterns(a, b, pattern, patterns::intersected);
}

redblue_status redblue_pattern_united(const redblue_pattern* a, const redblue_pattern* b, redblue_pattern** pattern) {
  return join_patterns(a, b, pattern, patterns::united);
}

void redblue_pattern_destroy(redblue_pattern* pattern) { delete pattern; }

redblue_status redblue_plan_create(const redblue_problem* problem, const redblue_plan_options* options,
                                   redblue_plan** plan) {
  return guarded([&] {
    require_pointer(plan, "plan");
    *plan = nullptr;
    const redblue_problem asked = problem_given(problem);
    const Problem p = problem_of(asked);
    const redblue_plan_options given = options_given(options);
    const bool memory_given = given.fast_memory_words != 0 || given.fast_memory_bytes != 0;
    const bool time =
        given.objective == REDBLUE_MINIMISE_TIME || (given.objective == REDBLUE_MINIMISE_DEFAULT && !memory_given);
    if (given.objective < REDBLUE_MINIMISE_WORDS || given.objective > REDBLUE_MINIMISE_DEFAULT)
      throw InvalidArgument(fmt::format("objective = {} is no redblue_objective", given.objective));
    if (given.hardware_file != nullptr && !time)
      throw InvalidArgument(fmt::format("hardware_file = '{}' is for REDBLUE_MINIMISE_TIME", given.hardware_file));
    if (!time && !memory_given)
      throw InvalidArgument("REDBLUE_MINIMISE_WORDS needs fast_memory_words or fast_memory_bytes");
    auto result = std::make_unique<redblue_plan>();
    result->compute = dtype_of_numbers(given.compute, "compute");
    result->dtype = dtype_of_numbers(given.dtype, "dtype");
    result->threads = threads_of(given.threads);
    p.validate();
    require_arithmetic(result->compute, p, contiguous_tensors(p, result->dtype));
    plan::Options o = options_of(given, p.op, result->compute, result->dtype);
    o.reorder = asked.order == REDBLUE_ORDER_AUTOMATIC;
    if (given.max_workspace > 0) {
      RunOptions run_options;
      run_options.compute = result->compute;
      run_options.threads = result->threads;
      o.cap = memory_cap(given.max_workspace, contiguous_tensors(p, result->dtype), run_options);
    }
    result->plan = time ? make_plan_here(p, o,
                                         {result->compute, result->dtype, result->threads,
                                          given.hardware_file != nullptr ? given.hardware_file : ""})
                        : plan::make_plan(p, o);
    if (!p.patterns.empty()) result->plan.sizes();  // made now, in the order chosen, and kept: no run makes it
    result->schedule = result->plan.row().schedule;
    if (result->plan.forward) result->forward_schedule = result->plan.forward->row().schedule;
    result->theorem = result->plan.bound.name;
    result->tiling = plan::sizes_text(result->plan.row().tiling);
    for (const auto& [core, own] : schedule::own_tilings(result->plan.row().tiling))
      result->own_tilings.emplace_back(core, plan::sizes_text(own));
    *plan = result.release();
  });
}

void redblue_plan_destroy(redblue_plan* plan) { delete plan; }

redblue_status redblue_plan_describe(const redblue_plan* plan, redblue_plan_info* info) {
  return guarded([&] {
    require_pointer(plan, "plan");
    if (info == nullptr || (info->struct_size != kFirstInfo && info->struct_size != kInfoWithoutIndex))
      checked(info, "redblue_plan_info");
    const plan::Plan& p = plan->plan;
    const Io io = p.io();
    redblue_plan_info result = REDBLUE_PLAN_INFO_INIT;
    result.schedule = plan->schedule.c_str();
    if (p.forward) result.forward_schedule = plan->forward_schedule.c_str();
    result.reason = p.reason.c_str();
    result.bound_theorem = plan->theorem.c_str();
    result.words_read = saturated(io.total_reads());
    result.words_written = saturated(io.total_writes());
    result.bound_words = saturated(p.bound.words);
    result.footprint_words = saturated(p.footprint());
    result.flops = saturated(p.flops());
    result.ratio = p.row().ratio.value_or(0);
    result.tiling = plan->tiling.c_str();
    result.footprint_bytes = saturated(p.footprint_bytes().value_or(0));
    result.multiple_of_queries = p.options.multiple.query;
    result.multiple_of_keys = p.options.multiple.key;
    result.multiple_of_features = p.options.multiple.feature;
    result.reserve_words = saturated(p.options.reserve);
    result.double_buffer = p.options.double_buffer ? 1 : 0;
    const IndexWords index = p.index();
    result.index_words_read = saturated(index.reads);
    result.index_words_resident = saturated(index.resident);
    result.struct_size = info->struct_size;
    std::memcpy(info, &result, info->struct_size);
  });
}

redblue_status redblue_plan_tile(const redblue_plan* plan, const char* name, int64_t* size) {
  return guarded([&] {
    require_pointer(plan, "plan");
    require_pointer(name, "name");
    require_pointer(size, "size");
    for (const schedule::TileSize& k : plan->plan.row().tiling)
      if (k.name == name) return void(*size = k.value);
    throw InvalidArgument(fmt::format("{} has no tile '{}': {}", plan->schedule, name, plan->tiling));
  });
}

int64_t redblue_plan_own_tilings(const redblue_plan* plan) {
  return plan == nullptr ? 0 : std::ssize(plan->own_tilings);
}

redblue_status redblue_plan_own_tiling(const redblue_plan* plan, int64_t index, redblue_own_tiling* own) {
  return guarded([&] {
    require_pointer(plan, "plan");
    checked(own, "redblue_own_tiling");
    if (index < 0 || index >= std::ssize(plan->own_tilings))
      throw InvalidArgument(fmt::format("index = {}: {} shapes of sequences have tiles of their own, from 0 on", index,
                                        plan->own_tilings.size()));
    const auto& [core, tiling] = plan->own_tilings[static_cast<std::size_t>(index)];
    own->rows = core.n_q;
    own->keys = core.n_k;
    own->lo = core.lo == -Mask::kFar ? INT64_MIN : core.lo;
    own->hi = core.hi == Mask::kFar ? INT64_MAX : core.hi;
    own->prefix = core.prefix;
    own->tiling = tiling.c_str();
  });
}

redblue_status redblue_forward_workspace(const redblue_plan* plan, const redblue_forward_tensors* tensors,
                                         const redblue_run_options* options, size_t* bytes) {
  return workspace(plan, tensors, Operation::forward, options, bytes);
}
redblue_status redblue_backward_workspace(const redblue_plan* plan, const redblue_backward_tensors* tensors,
                                          const redblue_run_options* options, size_t* bytes) {
  return workspace(plan, tensors, Operation::backward, options, bytes);
}

redblue_status redblue_scores_workspace(const redblue_plan* plan, const redblue_scores_tensors* tensors,
                                        const redblue_run_options* options, size_t* bytes) {
  return workspace(plan, tensors, Operation::scores, options, bytes);
}

redblue_status redblue_forward(const redblue_plan* plan, const redblue_forward_tensors* tensors,
                               const redblue_run_options* options) {
  return execute(plan, tensors, Operation::forward, options);
}
redblue_status redblue_backward(const redblue_plan* plan, const redblue_backward_tensors* tensors,
                                const redblue_run_options* options) {
  return execute(plan, tensors, Operation::backward, options);
}
#ifndef REDBLUE_NO_METHODS
redblue_status redblue_certify(const redblue_problem* problem, const redblue_forward_tensors* tensors,
                               redblue_dtype compute, redblue_certificate* certificate) {
  return guarded([&] {
    checked(certificate, "redblue_certificate");
    const Problem p = problem_of(problem_given(problem));
    if (p.method_kind() == MethodKind::exact)
      throw InvalidArgument("approximate_degree = 0: exact attention has no error to prove");
    const Certificate c = with_tensors(p, tensors, compute, [&](const Inputs& x, DType arithmetic, DType of_o) {
      return certify(p, x, arithmetic, of_o);
    });
    redblue_certificate result = REDBLUE_CERTIFICATE_INIT;
    result.range = c.range();
    result.weight_error = c.weight_error();
    result.output_error = c.output_error();
    result.rounding = c.rounding();
    *certificate = result;
  });
}

redblue_status redblue_least_degree(const redblue_problem* problem, const redblue_forward_tensors* tensors,
                                    redblue_dtype compute, double tolerance, int64_t* degree, double* range) {
  return guarded([&] {
    require_pointer(degree, "degree");
    require_pointer(range, "range");
    *degree = 0;
    *range = 0;
    if (!(tolerance > 0 && tolerance < 1))
      throw InvalidArgument(fmt::format("tolerance = {}: give a number above 0 and below 1", tolerance));
    redblue_problem asked = problem_given(problem);
    asked.approximate_degree = 0;
    asked.approximate_range = 0;
    asked.approximate = nullptr;
    const Problem p = problem_of(asked);
    const Certificate norms = with_tensors(p, tensors, compute, [&](const Inputs& x, DType arithmetic, DType of_o) {
      return norms_of(p, x, arithmetic, of_o);
    });
    const auto least = least_polynomial(norms, tolerance);
    if (!least) return;
    *degree = least->degree();
    *range = least->range;
  });
}
#else
namespace {
redblue_status no_approximations() {
  return guarded([] { throw Unsupported("this build has no approximations (-DREDBLUE_METHODS=OFF)"); });
}
}  // namespace
redblue_status redblue_certify(const redblue_problem*, const redblue_forward_tensors*, redblue_dtype,
                               redblue_certificate*) {
  return no_approximations();
}
redblue_status redblue_least_degree(const redblue_problem*, const redblue_forward_tensors*, redblue_dtype, double,
                                    int64_t*, double*) {
  return no_approximations();
}
#endif

redblue_status redblue_scores(const redblue_plan* plan, const redblue_scores_tensors* tensors,
                              const redblue_run_options* options) {
  return execute(plan, tensors, Operation::scores, options);
}

}  // extern "C"
