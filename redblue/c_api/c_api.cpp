#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "redblue.h"
#include "redblue/c_api/callers_pool.hpp"
#include "redblue/c_api/calls.hpp"
#include "redblue/c_api/structs.hpp"
#include "redblue/c_api/tensors.hpp"
#include "redblue/language/word_type.hpp"
#include "redblue/masks/patterns.hpp"
#ifndef REDBLUE_NO_METHODS
#include "redblue/methods/certificate.hpp"
#endif
#include "redblue/planner/plan_here.hpp"
#include "redblue/planner/widths.hpp"
#include "redblue/runtime/backend.hpp"
#include "redblue/runtime/partial.hpp"
#include "redblue/runtime/run.hpp"
#include "redblue/runtime/storage_of.hpp"
#include "redblue/version.hpp"

/// The C interface: redblue.h in terms of attention.hpp.

using namespace redblue;
using namespace redblue::c_api;

struct redblue_plan {
  plan::Plan plan;
  DType compute, dtype;
  int threads;
  mutable RunMemo memo;
  // Strings that end in a null byte, as C wants them.
  std::string schedule, forward_schedule, theorem, tiling;
  std::vector<std::pair<schedule::CoreShape, std::string>> own_tilings;
};

namespace {

thread_local std::string last_error;         // NOLINT: a message per thread is what the interface promises
thread_local bool message_was_lost = false;  // NOLINT

}  // namespace

redblue_status c_api::fail(redblue_status status, const char* message) noexcept {
  try {
    last_error = message;
    message_was_lost = false;
  } catch (...) {
    message_was_lost = true;
  }
  return status;
}

namespace {

/// `op` is the operation that a function is named after.
void require_operation(const redblue_plan* plan, Operation op) {
  require_pointer(plan, "plan");
  const Operation made_for = plan->plan.problem.op,
                  called = made_for == Operation::weights ? Operation::scores : made_for;
  if (called != op)
    throw InvalidArgument(fmt::format("this plan is for {}: call redblue_{} with it", redblue::name_of(made_for),
                                      redblue::name_of(called)));
}

std::size_t size_from(Words bytes) { return static_cast<std::size_t>(bytes.to_index()); }

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
      described = tensors_of(p, given(tensors));
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
    run(plan->plan, tensors_of(plan->plan.problem, given(tensors)), options.run, plan->memo);
  });
}

#ifndef REDBLUE_NO_METHODS
/// f(inputs, arithmetic, type of o) of the tensors of a forward problem.
template <class F>
Certificate with_tensors(const Problem& p, const redblue_forward_tensors* tensors, redblue_dtype compute, const F& f) {
  p.validate();
  if (p.op != Operation::forward)
    throw Unsupported(fmt::format("operation {}: certificates are of REDBLUE_FORWARD", redblue::name_of(p.op)));
  const Tensors t = tensors_of(p, given(tensors));
  return f(Inputs{t[SlowArray::Q], t[SlowArray::K], t[SlowArray::V]}, dtype_of_numbers(compute, "compute"),
           t[SlowArray::O].dtype);
}
#endif

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
    case REDBLUE_RANK_FAILED:
      return "rank failed";
    default:
      return "no redblue_status";
  }
}

const char* redblue_last_error() { return message_was_lost ? "out of memory" : last_error.c_str(); }

redblue_status redblue_plan_create(const redblue_problem* problem, const redblue_plan_options* options,
                                   redblue_plan** plan) {
  return guarded([&] {
    require_pointer(plan, "plan");
    *plan = nullptr;
    const redblue_problem asked = given(problem);
    const Problem p = problem_of(asked);
    const redblue_plan_options given = c_api::given(options);
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
    plan::Options o = options_of(given, asked, p.op, result->compute, result->dtype);
    if (o.memory || o.keys_per_scale > 0) set_widths(o, p, result->dtype, word_of(result->compute), {});
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
    checked(info, "redblue_plan_info");
    const plan::Plan& p = plan->plan;
    const Io io = p.io();
    redblue_plan_info result = defaults<redblue_plan_info>();
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
    result.bytes_moved = saturated(p.options.memory ? plan::bytes_of(p).total() : Words(0));
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

redblue_status redblue_tangent_workspace(const redblue_plan* plan, const redblue_tangent_tensors* tensors,
                                         const redblue_run_options* options, size_t* bytes) {
  return workspace(plan, tensors, Operation::tangent, options, bytes);
}
redblue_status redblue_second_workspace(const redblue_plan* plan, const redblue_second_tensors* tensors,
                                        const redblue_run_options* options, size_t* bytes) {
  return workspace(plan, tensors, Operation::second, options, bytes);
}

redblue_status redblue_forward(const redblue_plan* plan, const redblue_forward_tensors* tensors,
                               const redblue_run_options* options) {
  return execute(plan, tensors, Operation::forward, options);
}
redblue_status redblue_backward(const redblue_plan* plan, const redblue_backward_tensors* tensors,
                                const redblue_run_options* options) {
  return execute(plan, tensors, Operation::backward, options);
}
redblue_status redblue_tangent(const redblue_plan* plan, const redblue_tangent_tensors* tensors,
                               const redblue_run_options* options) {
  return execute(plan, tensors, Operation::tangent, options);
}
redblue_status redblue_second(const redblue_plan* plan, const redblue_second_tensors* tensors,
                              const redblue_run_options* options) {
  return execute(plan, tensors, Operation::second, options);
}
#ifndef REDBLUE_NO_METHODS
redblue_status redblue_certify(const redblue_problem* problem, const redblue_forward_tensors* tensors,
                               redblue_dtype compute, redblue_certificate* certificate) {
  return guarded([&] {
    checked(certificate, "redblue_certificate");
    const Problem p = problem_of(given(problem));
    if (p.method_kind() == MethodKind::exact)
      throw InvalidArgument("approximate_degree = 0: exact attention has no error to prove");
    const Certificate c = with_tensors(p, tensors, compute, [&](const Inputs& x, DType arithmetic, DType of_o) {
      return certify(p, x, arithmetic, of_o);
    });
    redblue_certificate result = defaults<redblue_certificate>();
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
    redblue_problem asked = given(problem);
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
  return guarded([] { throw Unsupported(std::string(kNoApproximations)); });
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

redblue_status redblue_merge(const redblue_merge_tensors* tensors, const redblue_run_options* run_options) {
  return guarded([&] {
    const redblue_merge_tensors& t = checked(tensors, "redblue_merge_tensors");
    for (const auto& [name, size] : {std::pair("batch", t.batch), {"heads", t.heads}, {"n_q", t.n_q}, {"d_v", t.d_v}})
      if (size < 1) throw InvalidArgument(fmt::format("{} = {}: give a number from 1 on", name, size));
    for (const redblue_dtype other : {t.lse.dtype, t.more_o.dtype, t.more_lse.dtype})
      if (other != t.o.dtype || (other != REDBLUE_F32 && other != REDBLUE_F64))
        throw Unsupported(
            "redblue_merge takes o, lse, more_o and more_lse that are all REDBLUE_F32, or all REDBLUE_F64");
    const std::array<index_t, 4> of_o{t.batch, t.heads, t.n_q, t.d_v}, of_lse{t.batch, t.heads, t.n_q, 1};
    const Outputs into{tensor_of(t.o, of_o, SlowArray::O), tensor_of(t.lse, of_lse, SlowArray::lse)};
    const MergeInputs more{tensor_of(t.more_o, of_o, SlowArray::Og), tensor_of(t.more_lse, of_lse, SlowArray::lse_g)};
    redblue_plan none{};
    none.compute = into.o.dtype == DType::f64 ? DType::f64 : DType::f32;
    if (run_options != nullptr && (run_options->workspace != nullptr || run_options->workspace_size > 0))
      throw InvalidArgument("workspace: redblue_merge allocates the few kilobytes that it needs; leave it NULL");
    const Options options(none, run_options);
    merge(more, into, {}, options.run);
  });
}
redblue_status redblue_scores(const redblue_plan* plan, const redblue_scores_tensors* tensors,
                              const redblue_run_options* options) {
  return execute(plan, tensors, Operation::scores, options);
}

}  // extern "C"
