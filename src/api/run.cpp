#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "execute.hpp"
#include "redblue/machine/counting.hpp"
#include "redblue/machine/observed.hpp"
#include "redblue/machine/ram.hpp"
#include "storage_of.hpp"

namespace redblue {

namespace {

void require_shape(std::string_view name, const Tensor& t, std::array<index_t, 4> wanted) {
  if (t.data == nullptr) throw InvalidProblem(fmt::format("tensor {} has no data", name));
  if (t.shape != wanted)
    throw InvalidProblem(fmt::format("tensor {} is [{}], the problem wants [{}] (batch, heads, sequence, features)",
                                     name, fmt::join(t.shape, ", "), fmt::join(wanted, ", ")));
}

using Run = std::pair<const std::byte*, const std::byte*>;  // first byte and one past the last

/// The runs of bytes that a tensor touches, sorted.
std::vector<Run> runs_of(const Tensor& t) {
  const auto size = static_cast<index_t>(size_of(t.dtype));
  const bool rows = t.strides[3] == 1;  // a row is one run, else every element is
  std::vector<Run> runs;
  for (index_t b = 0; b < t.shape[0]; ++b)
    for (index_t h = 0; h < t.shape[1]; ++h)
      for (index_t r = 0; r < t.shape[2]; ++r)
        for (index_t c = 0; c < (rows ? 1 : t.shape[3]); ++c) {
          const index_t at = b * t.strides[0] + h * t.strides[1] + r * t.strides[2] + c * t.strides[3];
          const auto* first = static_cast<const std::byte*>(t.data) + at * size;
          runs.emplace_back(first, first + (rows ? t.shape[3] : 1) * size);
        }
  std::sort(runs.begin(), runs.end(), [](const Run& x, const Run& y) { return std::less<>()(x.first, y.first); });
  return runs;
}

void require_own_memory(std::string_view name, const std::vector<Run>& runs) {
  for (std::size_t i = 1; i < runs.size(); ++i)
    if (std::less<>()(runs[i].first, runs[i - 1].second))
      throw InvalidProblem(fmt::format("output {} overlaps itself: two of its entries share memory", name));
}

void require_disjoint(std::string_view output, const std::vector<Run>& o, std::string_view other,
                      const std::vector<Run>& x) {
  for (std::size_t i = 0, j = 0; i < o.size() && j < x.size();) {
    if (std::less<>()(o[i].first, x[j].second) && std::less<>()(x[j].first, o[i].second))
      throw InvalidProblem(fmt::format("output {} overlaps {} in memory: give it memory of its own", output, other));
    std::less<>()(o[i].second, x[j].second) ? ++i : ++j;
  }
}

/// make(), which takes about this many words of T from the system; says who wanted them if they cannot be had.
template <class T, class Make>
auto with_memory(Words words, std::string_view what, const Make& make) {
  const Words bytes = words * sizeof(T), have = Words(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const auto refusal = [&] {
    return CapacityError(
        fmt::format(
            "{} needs {} bytes and this machine has {}: choose a schedule without workspace, or a smaller problem",
            what, bytes.str(), have.str()),
        bytes, have);
  };
  if (bytes > have) throw refusal();
  try {
    return make();
  } catch (const std::bad_alloc&) {
    throw refusal();
  }
}

template <class T>
std::unique_ptr<T[]> allocate(Words words, std::string_view what) {
  return with_memory<T>(
      words, what, [&] { return std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(words.to_index())); });
}

/// An output that lives in the compute type while the schedule revisits it, and is converted once at the end: rounding
/// to a narrower type at each visit would add an error per visit.
template <class T>
class Working {
 public:
  Working(const Tensor& target, bool revisited) : target_(target), view_(target) {
    if (!revisited || target.dtype == kDTypeOf<T>) return;
    words_ = Words(target.shape[0]) * target.shape[1] * target.shape[2] * target.shape[3];
    buffer_ = allocate<T>(words_, "an output in the compute type");
    view_ = Tensor(buffer_.get(), kDTypeOf<T>, target.shape);
  }
  const Tensor& tensor() const { return view_; }
  Words words() const { return words_; }
  void finish() {
    if (!buffer_) return;
    const auto [B, H, rows, cols] = target_.shape;
    const machine::Storage to = storage_of(target_, H, 1, true);
    for (index_t instance = 0; instance < B * H; ++instance)
      machine::scatter<T>(to, {SlowArray::O, instance, 0, 0, {rows, cols}}, buffer_.get() + instance * rows * cols,
                          cols, 1);
  }

 private:
  Tensor target_, view_;
  std::unique_ptr<T[]> buffer_;
  Words words_ = 0;
};

template <class T>
Measured run_in(const plan::Plan& plan, const Inputs& in, const Outputs& out, const RunOptions& options) {
  const Problem& p = plan.problem;
  const plan::Row& row = plan.row();
  const bool revisited =
      std::visit([](const auto& c) { return std::decay_t<decltype(c)>::Schedule::rewrites_outputs; }, row.choice);
  const index_t kv_heads = p.kv_heads.value_or(p.heads);
  Working<T> o(out.o, revisited);

  Tensor lse = out.lse;
  std::unique_ptr<T[]> unwanted_lse;
  if (lse.data == nullptr) {
    const std::array<index_t, 4> shape{p.batch, p.heads, p.n_q, 1};
    unwanted_lse = allocate<T>(Words(p.batch) * p.heads * p.n_q, "lse");
    lse = Tensor(unwanted_lse.get(), kDTypeOf<T>, shape);
  }
  // Every schedule that reads lse back does so to compute with it.
  Working<T> working_lse(lse, true);

  const auto S = allocate<T>(row.workspace, "workspace for scores");
  machine::SlowMemory slow;
  slow[index_of(SlowArray::Q)] = storage_of(in.q, kv_heads, p.group(), false);
  slow[index_of(SlowArray::K)] = storage_of(in.k, kv_heads, 1, false);
  slow[index_of(SlowArray::V)] = storage_of(in.v, kv_heads, 1, false);
  slow[index_of(SlowArray::O)] = storage_of(o.tensor(), kv_heads, p.group(), true);
  slow[index_of(SlowArray::lse)] = storage_of(working_lse.tensor(), kv_heads, p.group(), true);
  slow[index_of(SlowArray::S)] = machine::Storage::matrix(S.get(), {p.n_q * p.group(), p.n_k});

  auto ram =
      with_memory<T>(row.footprint, "fast memory", [&] { return machine::Ram<T>(row.footprint.to_index(), slow); });
  machine::Counted counted(ram);
  const double total = row.io.total().to_double();
  machine::Observed observed(counted, [&] {
    if (options.progress) options.progress(counted.io().total().to_double() / total);
  });
  execute(observed, plan);
  o.finish();
  working_lse.finish();

  Measured m;
  m.io = counted.io();
  m.peak = counted.peak();
  m.flops = Words(2) * counted.macs();
  m.staging_words = ram.staging_words();
  m.converted_words = o.words() + working_lse.words();
  return m;
}

}  // namespace

void require_shapes(const Problem& p, const Inputs& in, const Outputs& out) {
  const index_t kv_heads = p.kv_heads.value_or(p.heads);
  require_shape("q", in.q, {p.batch, p.heads, p.n_q, p.d});
  require_shape("k", in.k, {p.batch, kv_heads, p.n_k, p.d});
  require_shape("v", in.v, {p.batch, kv_heads, p.n_k, p.d_v});
  require_shape("o", out.o, {p.batch, p.heads, p.n_q, p.d_v});
  if (out.lse.data != nullptr) require_shape("lse", out.lse, {p.batch, p.heads, p.n_q, 1});
}

Measured run(const plan::Plan& plan, const Inputs& inputs, const Outputs& outputs, const RunOptions& options) {
  require_shapes(plan.problem, inputs, outputs);
  const auto o = runs_of(outputs.o), lse = outputs.lse.data != nullptr ? runs_of(outputs.lse) : std::vector<Run>();
  require_own_memory("o", o);
  require_own_memory("lse", lse);
  require_disjoint("lse", lse, "o", o);
  for (const auto& [name, x] : {std::pair("q", &inputs.q), std::pair("k", &inputs.k), std::pair("v", &inputs.v)}) {
    const auto input = runs_of(*x);
    require_disjoint("o", o, name, input);
    require_disjoint("lse", lse, name, input);
  }
  if (outputs.lse.data != nullptr && plan.row().io.writes[index_of(SlowArray::lse)] == 0)
    throw InvalidProblem(
        fmt::format("schedule {} writes no lse for this plan: set lse_required in the problem, or ask for none",
                    plan.row().schedule));
  if (options.compute == DType::f64) return run_in<double>(plan, inputs, outputs, options);
  if (options.compute == DType::f32) return run_in<float>(plan, inputs, outputs, options);
  throw Unsupported(fmt::format("compute type {}: arithmetic is f32 or f64", name_of(options.compute)));
}

}  // namespace redblue
