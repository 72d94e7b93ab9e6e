#include <fmt/format.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "module.hpp"
#include "redblue/problem.hpp"
#include "run.hpp"
#include "xla_abi.hpp"

/// A handler of XLA's custom calls, by which compiled programs of JAX run plans on their buffers. XLA calls it on
/// threads of its own; it takes no lock of the interpreter.
namespace redblue::python {

namespace {

/// A plan that programs call by name: its arguments are the inputs, in the order of kRunArrays, then the seed, if the
/// problem has dropout; its results are the outputs, in that order. An output that is added to is among the inputs,
/// too.
struct Callee {
  std::shared_ptr<const NamedPlan> plan;
  bool tokens_first = false;
  std::vector<SlowArray> inputs{}, outputs{};
};

/// The plans of all programs of the process. None is forgotten: JAX does not say when a program is.
class Callees {
 public:
  void add(const std::string& name, Callee&& callee) {
    const std::unique_lock lock(mutex_);
    list_.try_emplace(name, std::move(callee));
  }
  const Callee& find(const std::string& name) const {
    const std::shared_lock lock(mutex_);
    const auto found = list_.find(name);
    if (found == list_.end())
      throw InvalidProblem(
          "this program was made by another process, and its plan is not in this one: trace it here, too");
    return found->second;  // stays where it is
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<std::string, Callee> list_;
};

Callees& callees() {
  static Callees& all = *new Callees;  // never destroyed: programs may run until the very end
  return all;
}

void add_callee(const std::string& name, std::shared_ptr<const NamedPlan> plan, bool tokens_first) {
  const Problem& problem = plan->plan.problem;
  const Tensors tensors = contiguous_tensors(problem, plan->wanted.tensors);
  Callee callee{.plan = std::move(plan), .tokens_first = tokens_first};
  for (const SlowArray a : kRunArrays) {
    if (tensors[a].shape[0] == 0) continue;
    const bool output = is_written(problem, a);
    if (output) callee.outputs.push_back(a);
    if (!output || adds_to(problem, a)) callee.inputs.push_back(a);
  }
  callees().add(name, std::move(callee));
}

std::string plan_name(const xla::Attributes& attributes) {
  for (std::int64_t i = 0; i < attributes.size; ++i) {
    const xla::Bytes& name = *attributes.names[i];
    if (std::string_view(name.data, name.size) != "plan" || attributes.types[i] != xla::kString) continue;
    const auto& value = *static_cast<const xla::Bytes*>(attributes.values[i]);
    return {value.data, value.size};
  }
  throw InvalidProblem("redblue's custom call has no attribute 'plan': call it through redblue.jax");
}

/// The buffers of arguments or results.
class BufferList {
 public:
  BufferList(const xla::Values& values, std::size_t wanted, const char* what) : values_(values) {
    if (values.size != static_cast<std::int64_t>(wanted) ||
        std::any_of(values.types, values.types + values.size, [](int type) { return type != xla::kBuffer; }))
      throw InvalidProblem(
          fmt::format("redblue's custom call has {} {} and its plan takes {} arrays: call it through redblue.jax",
                      values.size, what, wanted));
  }
  const xla::Buffer& operator[](std::size_t i) const { return *static_cast<const xla::Buffer*>(values_.values[i]); }

 private:
  const xla::Values& values_;
};

DType dtype_of(xla::Type type, SlowArray name) {
  switch (type) {
    case xla::Type::pred:
      return DType::boolean;
    case xla::Type::f16:
      return DType::f16;
    case xla::Type::bf16:
      return DType::bf16;
    case xla::Type::f32:
      return DType::f32;
    case xla::Type::f64:
      return DType::f64;
    default:
      throw InvalidProblem(fmt::format("{} has elements of XLA's type {}: give float64, float32, float16 or bfloat16",
                                       tensor_name(name), static_cast<int>(type)));
  }
}

Tensor tensor_of(const xla::Buffer& b, Form form, SlowArray name) {
  require_dimensions(name, b.rank);
  Given g{.data = b.data, .dtype = dtype_of(b.type, name), .dimensions = static_cast<std::size_t>(b.rank)};
  std::copy_n(b.dims, g.dimensions, g.shape.begin());
  index_t stride = 1;
  for (std::size_t i = g.dimensions; i-- > 0; stride *= g.shape[i]) g.strides[i] = stride;
  return tensor_of(g, form, name);
}

/// Both are dense, as XLA's buffers are.
void copy(const Tensor& from, const Tensor& to, SlowArray name) {
  if (from.dtype != to.dtype || from.shape != to.shape)
    throw InvalidProblem(
        fmt::format("{} has another type or shape as an argument than as a result: it is added to, and both are one",
                    tensor_name(name)));
  const index_t words = std::accumulate(from.shape.begin(), from.shape.end(), index_t{1}, std::multiplies<>());
  std::memcpy(to.data, from.data, static_cast<std::size_t>(words) * size_of(from.dtype));
}

index_t seed_in(const xla::Buffer& b) {
  switch (b.type) {
    case xla::Type::s32:
      return *static_cast<const std::int32_t*>(b.data);
    case xla::Type::u32:
      return *static_cast<const std::uint32_t*>(b.data);
    case xla::Type::s64:
      return *static_cast<const std::int64_t*>(b.data);
    case xla::Type::u64:  // what is too large is out of range as a negative number, too
      return static_cast<index_t>(*static_cast<const std::uint64_t*>(b.data));
    default:
      throw InvalidProblem(
          fmt::format("seed is of XLA's type {}: give a whole number of 32 or 64 bits", static_cast<int>(b.type)));
  }
}

void run_call(const xla::Call& call) {
  const Callee& callee = callees().find(plan_name(call.attributes));
  const bool seeded = callee.plan->plan.problem.dropout != 0;
  const BufferList arguments(call.arguments, callee.inputs.size() + (seeded ? 1 : 0), "arguments");
  const BufferList results(call.results, callee.outputs.size(), "results");
  Tensors tensors;
  const auto take = [&](const BufferList& buffers, const std::vector<SlowArray>& arrays) {
    for (std::size_t i = 0; i < arrays.size(); ++i)
      tensors[arrays[i]] = tensor_of(buffers[i], form_of(arrays[i], callee.tokens_first), arrays[i]);
  };
  take(arguments, callee.inputs);
  const Tensors given = tensors;
  take(results, callee.outputs);
  for (const SlowArray a : callee.outputs)
    if (adds_to(callee.plan->plan.problem, a)) copy(given[a], tensors[a], a);
  run(*callee.plan, tensors, seeded ? seed_in(arguments[callee.inputs.size()]) : 0);
}

xla::Error* error(const xla::Call& call, xla::Code code, const char* message) {
  count_refusal();
  xla::NewError made{.struct_size = sizeof(xla::NewError), .extensions = nullptr, .message = message, .code = code};
  return call.api->new_error(&made);
}

/// XLA refuses a handler of a version that it does not know, and JAX then has no CPU: a handler is of XLA's own
/// version, or of the newest that this text knows. Versions from 0.1 on call it in the same way; 0.1 does not say that
/// it asks.
void tell_version(const xla::Api* api, xla::Metadata& metadata) {
  int minor = xla::kMinor;
  if (api == nullptr) {
    minor = 1;
  } else if (api->version.major == xla::kMajor) {
    minor = std::clamp(api->version.minor, 1, xla::kMinor);
  }
  metadata.version = {.struct_size = sizeof(xla::Version), .extensions = nullptr, .major = xla::kMajor, .minor = minor};
}

xla::Error* handle(xla::Call* call) {
  try {
    if (call->extensions != nullptr && call->extensions->type == xla::kMetadata)
      tell_version(call->api, *reinterpret_cast<xla::MetadataExtension*>(call->extensions)->metadata);
    else
      run_call(*call);
    return nullptr;
  } catch (const Unsupported& e) {
    return error(*call, xla::Code::unimplemented, e.what());
  } catch (const MemoryError& e) {
    return error(*call, xla::Code::resource_exhausted, e.what());
  } catch (const Error& e) {
    return error(*call, xla::Code::invalid_argument, e.what());
  } catch (const std::exception& e) {
    return error(*call, xla::Code::internal, e.what());
  }
}

}  // namespace

void add_xla(nb::module_& m) {
  using namespace nb::literals;
  m.def(
      "xla_handler", [] { return nb::capsule(reinterpret_cast<void*>(&handle)); },
      "The handler of redblue's custom calls, for jax.ffi.register_ffi_target.");
  m.def("add_callee", &add_callee, "name"_a, "plan"_a, "tokens_first"_a,
        "From now on a custom call whose attribute `plan` is this name runs the plan.");
}

}  // namespace redblue::python
