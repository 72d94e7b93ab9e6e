#include "redblue/c_api/structs.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>

#include "redblue/c_api/calls.hpp"
#include "redblue/language/word_type.hpp"
#include "redblue/planner/options.hpp"
#include "redblue/problem/options.hpp"
#include "redblue/version.hpp"

namespace redblue::c_api {

namespace {

/// The size of a struct in the first version that had it. A program that was compiled before a struct grew gives a size
/// from this on: what it does not know has its default.
template <class S>
constexpr std::size_t kFirstSize = sizeof(S);
template <>
constexpr std::size_t kFirstSize<redblue_problem> = offsetof(redblue_problem, window_left);
template <>
constexpr std::size_t kFirstSize<redblue_plan_options> = offsetof(redblue_plan_options, fast_memory_bytes);
template <>
constexpr std::size_t kFirstSize<redblue_forward_tensors> = offsetof(redblue_forward_tensors, bias);
template <>
constexpr std::size_t kFirstSize<redblue_backward_tensors> = offsetof(redblue_backward_tensors, bias);
template <>
constexpr std::size_t kFirstSize<redblue_tangent_tensors> = offsetof(redblue_tangent_tensors, tbias);
template <>
constexpr std::size_t kFirstSize<redblue_second_tensors> = offsetof(redblue_second_tensors, gbias);
template <>
constexpr std::size_t kFirstSize<redblue_plan_info> = offsetof(redblue_plan_info, tiling);
template <>
constexpr std::size_t kFirstSize<redblue_layout> = offsetof(redblue_layout, reproducible);
template <>
constexpr std::size_t kFirstSize<redblue_ranks_options> = offsetof(redblue_ranks_options, kept);

/// Whole fields: structs end where a field of 8 bytes may begin.
template <class S>
bool is_size_of(std::size_t size) {
  return size >= kFirstSize<S> && size <= sizeof(S) && size % alignof(S) == 0;
}

template <class Option>
constexpr bool kIsNumber = std::is_arithmetic_v<typename std::remove_cvref_t<Option>::Number>;
/// Does C word it in its own way? It numbers all other values that have names as their list does.
template <class Option>
bool in_own_words(const Option& o) {
  return o.about.source == option::Source::phrase;
}

/// Throws InvalidArgument for a number that no name has.
template <Named E>
E value_numbered(std::int32_t number, std::string_view option) {
  const auto& names = names_of(E{});
  if (number < 0 || static_cast<std::size_t>(number) >= names.size())
    throw InvalidArgument(
        fmt::format("{} = {}: give 0 to {}, for {}", option, number, names.size() - 1, fmt::join(names, ", ")));
  return static_cast<E>(number);
}

/// Sets what the struct of C has under the same name: numbers, truths, texts that are not NULL, and values by their
/// number. What may be left out is there where has_NAME is not 0; without such a field, where it is not 0 itself.
template <class Table, class C, class S>
void set_options(const Table& table, const C& from, S& to) {
  option::for_each(table, [&](const auto& o) {
    using Value = typename std::remove_cvref_t<decltype(o)>::Value;
    if constexpr (kIsNumber<decltype(o)> && requires { o.of(from); }) {
      using Number = typename std::remove_cvref_t<decltype(o)>::Number;
      if constexpr (!std::remove_cvref_t<decltype(o)>::kOptional)
        o.of(to) = static_cast<Number>(o.of(from));
      else if constexpr (requires { o.has(from); }) {
        if (o.has(from) != 0) o.of(to) = o.of(from);
      } else if (o.of(from) != 0) {
        o.of(to) = o.of(from);
      }
    } else if constexpr (std::is_same_v<Value, std::string> && requires { o.of(from); }) {
      if (o.of(from) != nullptr) o.of(to) = o.of(from);
    } else if constexpr (Named<Value> && requires { o.of(from); }) {
      if (!in_own_words(o)) o.of(to) = value_numbered<Value>(o.of(from), o.name);
    }
  });
}
/// Copies the numbers of `from` that have a default, and its values by their number, into the C struct.
template <class Table, class S, class C>
void set_defaults(const Table& table, const S& from, C& to) {
  option::for_each(table, [&](const auto& o) {
    if constexpr (kIsNumber<decltype(o)> && requires { o.of(to); })
      if constexpr (!std::remove_cvref_t<decltype(o)>::kOptional)
        o.of(to) = static_cast<std::remove_reference_t<decltype(o.of(to))>>(o.of(from));
    if constexpr (Named<typename std::remove_cvref_t<decltype(o)>::Value> && requires { o.of(to); })
      if (!in_own_words(o)) o.of(to) = static_cast<std::int32_t>(o.of(from));
  });
}

template <class... T>
void set_dtypes(T&... tensors) {
  ((tensors.dtype = REDBLUE_F32), ...);
}
template <class S>
void set_defaults(S& /*all are 0*/) {}
void set_defaults(redblue_problem& p) { set_defaults(problem_options(), Problem{}, p); }
void set_defaults(redblue_plan_options& o) {
  set_defaults(plan::plan_options(), plan::Options{}, o);
  o.objective = REDBLUE_MINIMISE_DEFAULT;
  o.compute = o.dtype = REDBLUE_F32;
  o.multiple_of_queries = o.multiple_of_keys = o.multiple_of_features = 1;
}
void set_defaults(redblue_layout& l) { l.head_groups = l.grid_rows = l.grid_cols = 1; }
void set_defaults(redblue_ranks_options& o) {
  o.compute = REDBLUE_F32;
  o.patience = 600;
}
void set_defaults(redblue_forward_tensors& t) { set_dtypes(t.q, t.k, t.v, t.o, t.lse, t.bias, t.slopes, t.sinks); }
void set_defaults(redblue_backward_tensors& t) {
  set_dtypes(t.q, t.k, t.v, t.o, t.lse, t.d_o, t.dq, t.dk, t.dv, t.bias, t.slopes, t.sinks, t.dbias, t.dsinks, t.dlse);
}
void set_defaults(redblue_tangent_tensors& t) {
  set_dtypes(t.q, t.k, t.v, t.o, t.lse, t.tq, t.tk, t.tv, t.to, t.tlse, t.bias, t.slopes, t.sinks, t.tbias, t.tsinks);
}
void set_defaults(redblue_second_tensors& t) {
  set_dtypes(t.q, t.k, t.v, t.o, t.lse, t.d_o, t.gq, t.gk, t.gv, t.lq, t.lk, t.lv, t.ld_o);
  set_dtypes(t.bias, t.slopes, t.sinks, t.dlse, t.ldlse, t.gbias, t.lbias, t.gsinks, t.lsinks);
}
void set_defaults(redblue_merge_tensors& t) {
  t.batch = t.heads = 1;
  set_dtypes(t.o, t.lse, t.more_o, t.more_lse);
}
void set_defaults(redblue_scores_tensors& t) { set_dtypes(t.q, t.k, t.lse, t.s, t.bias, t.slopes); }

template <class S>
redblue_status init(void* s, std::size_t size, const char* type) {
  return guarded([&] {
    require_pointer(s, type);
    if (!is_size_of<S>(size)) {  // a function that is given it refuses it, too
      std::memset(s, 0, size);
      if (size >= sizeof size) *static_cast<std::size_t*>(s) = size;
      throw InvalidArgument(
          fmt::format("{} has {} bytes, and redblue {} knows {}: compile with the redblue.h of this "
                      "library, or of an earlier version",
                      type, size, kVersion, sizeof(S)));
    }
    S all = defaults<S>();
    all.struct_size = size;
    std::memcpy(s, &all, size);
  });
}

/// What the caller gives, of an earlier size or of today's.
template <class S>
S given(const S* s, const char* type) {
  require_pointer(s, type);
  S all = defaults<S>();
  std::memcpy(&all, &checked(s, type), s->struct_size);
  return all;
}

}  // namespace

template <class S>
S defaults() {
  S s{};
  set_defaults(s);
  s.struct_size = sizeof(S);
  return s;
}

template <class S>
const S& checked(const S* s, const char* type) {
  require_pointer(s, type);
  if (!is_size_of<S>(s->struct_size))
    throw InvalidArgument(
        fmt::format("struct_size of {} is {}, this redblue ({}) knows {}: initialise it with the "
                    "function of the redblue.h that belongs to this library",
                    type, s->struct_size, kVersion, sizeof(S)));
  return *s;
}
template const redblue_run_options& checked(const redblue_run_options*, const char*);
template const redblue_merge_tensors& checked(const redblue_merge_tensors*, const char*);
template const redblue_thread_pool& checked(const redblue_thread_pool*, const char*);
template const redblue_plan_info& checked(const redblue_plan_info*, const char*);
template const redblue_own_tiling& checked(const redblue_own_tiling*, const char*);
template const redblue_certificate& checked(const redblue_certificate*, const char*);
template const redblue_ranks_info& checked(const redblue_ranks_info*, const char*);
template redblue_plan_info defaults();
template redblue_own_tiling defaults();
template redblue_certificate defaults();
template redblue_ranks_info defaults();

redblue_problem given(const redblue_problem* problem) { return given(problem, "redblue_problem"); }
redblue_plan_options given(const redblue_plan_options* options) { return given(options, "redblue_plan_options"); }
redblue_forward_tensors given(const redblue_forward_tensors* t) { return given(t, "redblue_forward_tensors"); }
redblue_backward_tensors given(const redblue_backward_tensors* t) { return given(t, "redblue_backward_tensors"); }
redblue_scores_tensors given(const redblue_scores_tensors* t) { return given(t, "redblue_scores_tensors"); }
redblue_tangent_tensors given(const redblue_tangent_tensors* t) { return given(t, "redblue_tangent_tensors"); }
redblue_second_tensors given(const redblue_second_tensors* t) { return given(t, "redblue_second_tensors"); }
redblue_layout given(const redblue_layout* layout) { return given(layout, "redblue_layout"); }
redblue_ranks_options given(const redblue_ranks_options* options) { return given(options, "redblue_ranks_options"); }

Tensors with_scales(const redblue_forward_tensors& from, Tensors to) {
  for (const auto& [a, s] : {std::pair{SlowArray::K, from.k_scales}, std::pair{SlowArray::V, from.v_scales}})
    to[a].scales = {s.data, s.keys, s.batch_stride, s.head_stride, s.block_stride};
  return to;
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
    case REDBLUE_INT8:
      return DType::int8;
    default:
      throw InvalidArgument(fmt::format("{} = {} is no redblue_dtype", what, t));
  }
}

DType dtype_of_numbers(redblue_dtype t, const char* what) {
  const DType dtype = dtype_of(t, what);
  if (dtype == DType::boolean)
    throw InvalidArgument(fmt::format("{} = {}: only the tensor bias may be REDBLUE_BOOL", what, t));
  if (dtype == DType::int8)
    throw InvalidArgument(fmt::format(
        "{} = {}: only k and v of a forward pass may be REDBLUE_INT8; give their tensors so, and another {} "
        "here",
        what, t, what));
  return dtype;
}

int threads_of(int32_t threads) {
  if (threads < 0) throw InvalidArgument(fmt::format("threads = {}: give a number from 1 on, or 0", threads));
  return threads;
}

namespace {

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

/// No order where the planner chooses one.
std::optional<PatternOrder> order_of(redblue_pattern_order order) {
  switch (order) {
    case REDBLUE_ORDER_AUTOMATIC:
      return std::nullopt;
    case REDBLUE_ORDER_NATURAL:
      return PatternOrder::natural;
    case REDBLUE_ORDER_RCM:
      return PatternOrder::rcm;
    case REDBLUE_ORDER_JACCARD:
      return PatternOrder::jaccard;
    case REDBLUE_ORDER_IN_PLACE:
      return PatternOrder::in_place;
    default:
      throw InvalidArgument(fmt::format("order = {} is no redblue_pattern_order", order));
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
    case REDBLUE_TANGENT:
      return Operation::tangent;
    case REDBLUE_SECOND:
      return Operation::second;
    default:
      throw InvalidArgument(
          fmt::format("operation = {}: give REDBLUE_FORWARD, REDBLUE_BACKWARD, REDBLUE_SCORES, REDBLUE_WEIGHTS, "
                      "REDBLUE_TANGENT or REDBLUE_SECOND",
                      operation));
  }
}

}  // namespace

Problem problem_of(const redblue_problem& p) {
  if (p.has_causal_offset != 0 && p.causal == 0 && p.has_window_left == 0 && p.has_window_right == 0 && p.alibi == 0 &&
      p.dilation < 2)
    throw InvalidArgument("has_causal_offset is set and nothing counts from it: set causal, a window or alibi too");
  Problem result;
  set_options(problem_options(), p, result);
  result.op = operation_of(p.operation);
  result.forward_given = p.forward_missing == 0;
  if (p.d_v == 0) result.d_v = p.d;
  if (p.dilation == 0) result.dilation = 1;
  if (p.has_bias != 0) result.bias = {p.bias_shape[0], p.bias_shape[1], p.bias_shape[2], p.bias_shape[3]};
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
  result.take_order(order_of(p.order));
  return result;
}

plan::Options options_of(const redblue_plan_options& given, const redblue_problem& p, Operation op, DType compute,
                         DType dtype) {
  if (given.fast_memory_bytes != 0 && given.fast_memory_words != 0)
    throw InvalidArgument(fmt::format("fast_memory_words = {} and fast_memory_bytes = {}: give one of them",
                                      given.fast_memory_words, given.fast_memory_bytes));
  if (given.fast_memory_bytes != 0 && given.objective == REDBLUE_MINIMISE_TIME)
    throw InvalidArgument(fmt::format("fast_memory_bytes = {} is for REDBLUE_MINIMISE_WORDS", given.fast_memory_bytes));
  plan::Options o;
  set_options(plan::plan_options(), given, o);
  o.M = given.fast_memory_words;
  if (given.fast_memory_bytes != 0)
    o.memory = plan::ByteMemory{given.fast_memory_bytes, plan::residence_of(op, dtype, word_of(compute))};
  o.multiple = {given.multiple_of_queries, given.multiple_of_keys, given.multiple_of_features};
  o.reserve = given.reserve_words;
  o.reorder = p.order == REDBLUE_ORDER_AUTOMATIC;
  return o;
}

}  // namespace redblue::c_api

extern "C" redblue_status redblue_init(redblue_struct kind, void* s, size_t size) {
  using namespace redblue::c_api;
  switch (kind) {
    case REDBLUE_STRUCT_PROBLEM:
      return init<redblue_problem>(s, size, "redblue_problem");
    case REDBLUE_STRUCT_PLAN_OPTIONS:
      return init<redblue_plan_options>(s, size, "redblue_plan_options");
    case REDBLUE_STRUCT_FORWARD_TENSORS:
      return init<redblue_forward_tensors>(s, size, "redblue_forward_tensors");
    case REDBLUE_STRUCT_BACKWARD_TENSORS:
      return init<redblue_backward_tensors>(s, size, "redblue_backward_tensors");
    case REDBLUE_STRUCT_SCORES_TENSORS:
      return init<redblue_scores_tensors>(s, size, "redblue_scores_tensors");
    case REDBLUE_STRUCT_MERGE_TENSORS:
      return init<redblue_merge_tensors>(s, size, "redblue_merge_tensors");
    case REDBLUE_STRUCT_THREAD_POOL:
      return init<redblue_thread_pool>(s, size, "redblue_thread_pool");
    case REDBLUE_STRUCT_RUN_OPTIONS:
      return init<redblue_run_options>(s, size, "redblue_run_options");
    case REDBLUE_STRUCT_PLAN_INFO:
      return init<redblue_plan_info>(s, size, "redblue_plan_info");
    case REDBLUE_STRUCT_OWN_TILING:
      return init<redblue_own_tiling>(s, size, "redblue_own_tiling");
    case REDBLUE_STRUCT_CERTIFICATE:
      return init<redblue_certificate>(s, size, "redblue_certificate");
    case REDBLUE_STRUCT_TANGENT_TENSORS:
      return init<redblue_tangent_tensors>(s, size, "redblue_tangent_tensors");
    case REDBLUE_STRUCT_SECOND_TENSORS:
      return init<redblue_second_tensors>(s, size, "redblue_second_tensors");
    case REDBLUE_STRUCT_LAYOUT:
      return init<redblue_layout>(s, size, "redblue_layout");
    case REDBLUE_STRUCT_RANKS_OPTIONS:
      return init<redblue_ranks_options>(s, size, "redblue_ranks_options");
    case REDBLUE_STRUCT_RANKS_INFO:
      return init<redblue_ranks_info>(s, size, "redblue_ranks_info");
    default:
      return guarded([&] { throw InvalidArgument(fmt::format("kind = {} is no redblue_struct", kind)); });
  }
}
