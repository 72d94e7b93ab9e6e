#include "redblue/runtime/run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "redblue/planner/shapes.hpp"
#include "redblue/runtime/backend.hpp"
#include "redblue/runtime/overlap.hpp"
#include "redblue/runtime/storage_of.hpp"

namespace redblue {

namespace {

/// The arrays that a run writes beside those of its operation.
std::vector<SlowArray> kept_of_forward(const Problem& p, const RunOptions& options) {
  std::vector<SlowArray> list;
  if (!p.forward_first()) return list;
  if (options.forward.o.data != nullptr) list.push_back(SlowArray::O);
  if (options.forward.lse.data != nullptr) list.push_back(SlowArray::lse);
  return list;
}

/// The caller's tensors, those of a forward pass that runs first from RunOptions::forward.
Tensors with_forward(const Problem& p, Tensors tensors, const RunOptions& options) {
  if (!p.forward_first() && (options.forward.o.data != nullptr || options.forward.lse.data != nullptr))
    throw InvalidProblem(
        fmt::format("RunOptions::forward is for gradients whose forward pass runs first, not for {}{}", name_of(p.op),
                    follows_forward(p.op) ? " with o and lse given, or a score function without statistics" : ""));
  if (p.forward_first()) {
    tensors[SlowArray::O] = options.forward.o;
    tensors[SlowArray::lse] = options.forward.lse;
  }
  return tensors;
}

/// The tensors of these arrays, with data.
Tensors used(const Tensors& tensors, const std::vector<SlowArray>& inputs, const std::vector<SlowArray>& outputs) {
  Tensors result;
  for (const auto* list : {&inputs, &outputs})
    for (const SlowArray a : *list)
      if (tensors[a].data != nullptr) result[a] = tensors[a];
  return result;
}

/// int8 is for the keys and values of a forward pass, both, with scales.
void require_int8(const Problem& p, SlowArray a, const Tensors& tensors) {
  const Tensor &t = tensors[a], &other = tensors[a == SlowArray::K ? SlowArray::V : SlowArray::K];
  if (p.op != Operation::forward || (a != SlowArray::K && a != SlowArray::V))
    throw Unsupported(
        fmt::format("tensor {} is int8: only k and v of a forward pass may be; give floats, int8 words times their "
                    "scales",
                    tensor_name(a)));
  if (other.dtype != DType::int8)
    throw Unsupported(fmt::format("tensor {} is int8 and {} is {}: give both in int8, or both in one type of floats",
                                  tensor_name(a), tensor_name(a == SlowArray::K ? SlowArray::V : SlowArray::K),
                                  name_of(other.dtype)));
  if (t.scales.data == nullptr || t.scales.keys < 0)
    throw InvalidProblem(fmt::format(
        "tensor {} is int8 and {}: give Tensor::scales, fp32, one for each head or block of keys", tensor_name(a),
        t.scales.data == nullptr ? std::string("has no scales")
                                 : fmt::format("has {} keys to a scale", t.scales.keys)));
  const bool blocks = t.scales.keys > 0 && t.scales.keys < p.n_k;
  if (blocks && (!p.patterns.empty() || p.dilation > 1))
    throw Unsupported(
        fmt::format("tensor {} has a scale for each {} keys, and a pattern or dilation, which may take keys in another "
                    "order: give one scale for each head",
                    tensor_name(a), t.scales.keys));
}

/// Shapes are a Shapes, or a RunArrays.
template <class Shapes>
void require_shapes(const Problem& p, const Shapes& shapes, const std::vector<SlowArray>& arrays,
                    const Tensors& tensors) {
  for (const SlowArray a : arrays) {
    const Tensor& t = tensors[a];
    if (a == SlowArray::lse && is_forward(p.op) && !adds_to(p, a) && t.data == nullptr) continue;  // not wanted
    auto wanted = shapes[a];
    if ((a == SlowArray::slopes || a == SlowArray::sinks) && t.shape[0] == p.batch) wanted[0] = p.batch;
    if (t.dtype == DType::boolean && a != SlowArray::bias)
      throw Unsupported(fmt::format("tensor {} is bool: only a bias may be, as a mask", tensor_name(a)));
    if (t.dtype == DType::int8) require_int8(p, a, tensors);
    if (t.dtype != DType::int8 && t.scales.data != nullptr)
      throw InvalidProblem(
          fmt::format("tensor {} is {} and has scales: these are for int8 keys and values; leave them out",
                      tensor_name(a), name_of(t.dtype)));
    if (t.data == nullptr) throw InvalidProblem(fmt::format("tensor {} has no data", tensor_name(a)));
    if (t.shape != wanted)
      throw InvalidProblem(fmt::format("tensor {} is [{}], the problem wants [{}] (batch, heads, sequence, features)",
                                       tensor_name(a), fmt::join(t.shape, ", "), fmt::join(wanted, ", ")));
  }
}

}  // namespace

/// The arrays that a run reads and writes, and their shapes.
struct RunArrays {
  std::vector<SlowArray> inputs, outputs;
  explicit RunArrays(const Problem& p) {
    const Shapes all(p);
    inputs = all.inputs();
    outputs = all.outputs();
    for (const SlowArray a : {SlowArray::O, SlowArray::lse}) shapes_[index_of(a)] = all[a];  // kept_of_forward()
    for (const auto* list : {&inputs, &outputs})
      for (const SlowArray a : *list) shapes_[index_of(a)] = all[a];
  }
  const std::array<index_t, 4>& operator[](SlowArray a) const { return shapes_[index_of(a)]; }

 private:
  std::array<std::array<index_t, 4>, kSlowArrays> shapes_{};
};

const RunArrays& RunMemo::arrays(const Problem& problem) {
  std::call_once(once_, [&] { arrays_ = std::make_shared<const RunArrays>(problem); });
  return *arrays_;
}

namespace {

/// The tensors that a run takes.
Tensors checked(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, const RunArrays& arrays) {
  const Problem& p = plan.problem;
  const Tensors all = with_forward(p, tensors, options);
  std::vector<SlowArray> with_kept = kept_of_forward(p, options);
  if (!with_kept.empty()) with_kept.insert(with_kept.begin(), arrays.outputs.begin(), arrays.outputs.end());
  const std::vector<SlowArray>&inputs = arrays.inputs, &outputs = with_kept.empty() ? arrays.outputs : with_kept;
  require_no_more(p, all);
  require_shapes(p, arrays, inputs, all);
  require_shapes(p, arrays, outputs, all);
  for (const SlowArray a : outputs)
    if (all[a].read_only)
      throw InvalidProblem(
          fmt::format("tensor {} is a view of const words: an output must be writable", tensor_name(a)));
  require_no_overlap(all, inputs, outputs, options.memory);
  Tensors mine = used(all, inputs, outputs);
  if (is_forward(plan.problem.op) && is_given(mine[SlowArray::lse]) && !adds_to(plan.problem, SlowArray::lse) &&
      plan.row().io.writes[index_of(SlowArray::lse)] == 0)
    throw InvalidProblem(
        fmt::format("schedule {} writes no lse for this plan: set lse_required in the problem, or ask for none",
                    plan.row().schedule));
  return mine;
}

}  // namespace

void require_no_more(const Problem& p, const Tensors& tensors) {
  struct Asked {
    SlowArray array;
    bool asked;
    std::string_view option;
  };
  const auto belongs = [&](const auto& list, SlowArray a) { return std::ranges::find(list, a) != list.end(); };
  const auto& facts = facts_of(p.op);  // Tensors may hold those of other operations, too
  for (const auto& [array, asked, option] : {Asked{SlowArray::bias, p.bias.has_value(), "bias"},
                                             {SlowArray::slopes, p.alibi, "alibi"},
                                             {SlowArray::sinks, p.sinks, "sinks"},
                                             {SlowArray::dBias, p.bias_gradient, "bias_gradient"},
                                             {SlowArray::tBias, p.bias_direction, "bias_direction"},
                                             {SlowArray::gBias, p.bias_direction, "bias_direction"},
                                             {SlowArray::LBias, p.bias_direction, "bias_direction"},
                                             {SlowArray::dSinks, p.sinks_gradient, "sinks_gradient"},
                                             {SlowArray::tSinks, p.sinks_direction, "sinks_direction"},
                                             {SlowArray::gSinks, p.sinks_direction, "sinks_direction"},
                                             {SlowArray::LSinks, p.sinks_direction, "sinks_direction"},
                                             {SlowArray::dlse, p.lse_gradient, "lse_gradient"}})
    if (!asked && tensors[array].data != nullptr && (belongs(facts.reads, array) || belongs(facts.writes, array)))
      throw InvalidProblem(
          fmt::format("tensor {} is given, and {} of the problem is not set: set it, or leave the tensor out",
                      tensor_name(array), option));
}

void require_shapes(const Problem& p, const std::vector<SlowArray>& arrays, const Tensors& tensors) {
  require_shapes(p, Shapes(p), arrays, tensors);
}

Tensors tensors_of(const Inputs& in, const Outputs& out) {
  Tensors t;
  t[SlowArray::Q] = in.q;
  t[SlowArray::K] = in.k;
  t[SlowArray::V] = in.v;
  t[SlowArray::bias] = in.bias;
  t[SlowArray::slopes] = in.slopes;
  t[SlowArray::sinks] = in.sinks;
  t[SlowArray::O] = out.o;
  t[SlowArray::lse] = out.lse;
  return t;
}

Tensors tensors_of(const MergeInputs& in, const Outputs& out) {
  Tensors t = tensors_of(Inputs{}, out);
  t[SlowArray::Og] = in.o;
  t[SlowArray::lse_g] = in.lse;
  return t;
}

Tensors tensors_of(const BackwardInputs& in, const BackwardOutputs& out) {
  Tensors t = tensors_of(Inputs{in.q, in.k, in.v, in.bias, in.slopes, in.sinks}, Outputs{in.o, in.lse});
  t[SlowArray::dO] = in.dO;
  t[SlowArray::dlse] = in.dlse;
  t[SlowArray::dQ] = out.dq;
  t[SlowArray::dK] = out.dk;
  t[SlowArray::dV] = out.dv;
  t[SlowArray::dBias] = out.dbias;
  t[SlowArray::dSinks] = out.dsinks;
  return t;
}

Tensors tensors_of(const TangentInputs& in, const TangentOutputs& out) {
  Tensors t = tensors_of(Inputs{in.q, in.k, in.v, in.bias, in.slopes, in.sinks}, Outputs{in.o, in.lse});
  t[SlowArray::tQ] = in.tq;
  t[SlowArray::tK] = in.tk;
  t[SlowArray::tV] = in.tv;
  t[SlowArray::tBias] = in.tbias;
  t[SlowArray::tSinks] = in.tsinks;
  t[SlowArray::tO] = out.to;
  t[SlowArray::tlse] = out.tlse;
  return t;
}

Tensors tensors_of(const SecondInputs& in, const SecondOutputs& out) {
  Tensors t = tensors_of(Inputs{in.q, in.k, in.v, in.bias, in.slopes, in.sinks}, Outputs{in.o, in.lse});
  t[SlowArray::dO] = in.dO;
  t[SlowArray::dlse] = in.dlse;
  t[SlowArray::gQ] = in.gq;
  t[SlowArray::gK] = in.gk;
  t[SlowArray::gV] = in.gv;
  t[SlowArray::gBias] = in.gbias;
  t[SlowArray::gSinks] = in.gsinks;
  t[SlowArray::LQ] = out.lq;
  t[SlowArray::LK] = out.lk;
  t[SlowArray::LV] = out.lv;
  t[SlowArray::LdO] = out.ldO;
  t[SlowArray::Ldlse] = out.ldlse;
  t[SlowArray::LBias] = out.lbias;
  t[SlowArray::LSinks] = out.lsinks;
  return t;
}

Tensors tensors_of(const GradientXInputs& in, const GradientXOutputs& out) {
  Tensors t;
  t[SlowArray::A1] = in.a1;
  t[SlowArray::A2] = in.a2;
  t[SlowArray::A3] = in.a3;
  t[SlowArray::X] = in.x;
  t[SlowArray::Y] = in.y;
  t[SlowArray::dO] = in.dO;
  t[SlowArray::O] = in.o;
  t[SlowArray::lse] = in.lse;
  t[SlowArray::g] = out.g;
  return t;
}

Tensors tensors_of(const ScoresInputs& in, const ScoresOutputs& out) {
  Tensors t = tensors_of(Inputs{in.q, in.k, {}, in.bias, in.slopes}, Outputs{});
  t[SlowArray::lse] = in.lse;
  t[SlowArray::S] = t[SlowArray::P] = out.s;  // a run takes the one that its operation writes
  return t;
}

namespace {

const Backend& backend_of(const RunOptions& options) {
  return options.backend != nullptr ? *options.backend : ram_backend();
}

/// What the backend says it takes, if it holds such a problem.
Words bytes_of(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, RunMemo& memo, Walk walk) {
  const Backend& backend = backend_of(options);
  const Tensors all = with_forward(plan.problem, tensors, options);
  backend.require(plan.problem, all, options);
  return backend.bytes(plan, all, options, memo.of(backend), walk);
}

}  // namespace

Words run_bytes(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, RunMemo& memo) {
  return bytes_of(plan, tensors, options, memo, Walk::whole);
}
Words run_bytes(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options) {
  RunMemo memo;
  return run_bytes(plan, tensors, options, memo);
}

plan::Cap memory_cap(Words bytes, const Tensors& tensors, const RunOptions& options) {
  return {bytes, [tensors, options](const plan::Plan& plan) {
            RunMemo memo;
            return bytes_of(plan, tensors, options, memo, Walk::some);
          }};
}

RunMemory memory_of_run(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options) {
  const auto bytes_of = [&](const std::vector<SlowArray>& arrays) {
    Words all;
    for (const SlowArray a : arrays) {
      Words bytes = size_of(tensors[a].dtype);
      for (std::size_t k = 0; k < 4; ++k)
        if (tensors[a].strides[k] != 0 || tensors[a].shape[k] < 1) bytes = bytes * tensors[a].shape[k];
      all += bytes;
    }
    return all;
  };
  return {bytes_of(inputs_of(plan.problem)), bytes_of(outputs_of(plan.problem)),
          memory_cap(0, tensors, options).bytes_of(plan)};
}

Measured run(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, RunMemo& memo) {
  const Backend& backend = backend_of(options);
  const Tensors mine = checked(plan, tensors, options, memo.arrays(plan.problem));
  backend.require(plan.problem, mine, options);
  return backend.run(plan, mine, options, memo.of(backend));
}
Measured run(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options) {
  RunMemo memo;
  return run(plan, tensors, options, memo);
}
Measured run(const plan::Plan& plan, const Inputs& inputs, const Outputs& outputs, const RunOptions& options) {
  return run(plan, tensors_of(inputs, outputs), options);
}

}  // namespace redblue
