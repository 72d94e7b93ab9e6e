#include "redblue/runtime/backend.hpp"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "redblue/runtime/ram/lay_out.hpp"
#include "redblue/runtime/ram/run_row.hpp"

namespace redblue {

namespace {

/// Runs in this memory, and adds up what is measured. Returns false where the schedule takes more than these bytes of
/// it: then it has not begun.
template <class T>
bool run_in_memory(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, ArenaMemo& memo,
                   Scratch<T>& scratch, std::span<std::byte> memory, Words bytes, Measured& all) {
  Stack stack(memory);
  bool fits = true;
  const auto execute = [&](const plan::Plan& part, const RowFacts& facts, Resources<T>& with,
                           const Converted& converted, const Reordered& reordered) {
    fits = fits && stack.bytes() <= bytes;
    if (!fits) return;
    std::optional<ProgressReport> report;
    if (options.progress) {
      report.emplace(options.progress, static_cast<int>(scratch.arenas.size()), all.io.total(), plan.io().total());
      with.report = std::ref(*report);
    }
    ThreadPool& pool = *with.pool;
    const auto workers = static_cast<int>(scratch.arenas.size());
    reordered.gather(pool, workers);
    if (const bool first = all.kernels.empty(); first)
      all = run_row<T>(part, facts.prepared(), with);
    else
      add_part(all, run_row<T>(part, facts.prepared(), with));
    reordered.scatter<T>(pool, workers);
    converted.finish<T>(pool, workers);
    all.converted_words += converted.words();
    if (options.progress) options.progress(all.io.total().to_double() / plan.io().total().to_double());
  };
  fits = lay_out(plan, tensors, options, {bytes, Walk::whole}, Room{stack, stack}, memo, scratch, execute) && fits;
  all.bytes = stack.bytes();
  return fits;
}

template <class T>
Measured run_in(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, ArenaMemo& memo) {
  Measured all;
  ScratchOfThread<T> of_thread;
  Scratch<T>& scratch = *of_thread;
  // What was enough for runs before it is enough for most runs. Whether it is, is seen when this one is laid out.
  const index_t enough = memo.bytes();
  if (enough > 0 && plan.forward == nullptr && options.memory.data() == nullptr && !plan.options.cap) {
    const std::span<std::byte> memory = scratch.bytes(static_cast<std::size_t>(enough));
    if (!memory.empty() && run_in_memory<T>(plan, tensors, options, memo, scratch, memory, enough, all)) return all;
  }
  const Need need = need_of<T>(plan, tensors, options, memo);
  if (plan.options.cap && need.bytes > plan.options.cap->most)
    throw MemoryError(fmt::format("{}, and the plan was made for at most {}: plan for these tensors, or with a larger "
                                  "cap",
                                  need.account(), plan.options.cap->most.str()),
                      need.bytes, plan.options.cap->most);
  std::unique_ptr<std::byte[]> own;
  std::span<std::byte> memory = options.memory;
  if (memory.data() == nullptr) {
    own = allocate(need);
    memory = {own.get(), static_cast<std::size_t>(need.bytes.to_index())};
    memo.remember(need.bytes.to_index());
  } else if (need.bytes > memory.size()) {
    throw MemoryError(fmt::format("{}, and the memory given is {}", need.account(), memory.size()), need.bytes,
                      memory.size());
  }
  run_in_memory<T>(plan, tensors, options, memo, scratch, memory, need.bytes, all);
  return all;
}

/// The caller's memory, and the cores of this processor.
class RamBackend : public Backend {
 public:
  std::string_view name() const override { return "ram"; }
  std::unique_ptr<Memo> new_memo() const override { return std::make_unique<ArenaMemo>(); }
  void require(const Problem& problem, const Tensors& tensors, const RunOptions& options) const override {
    require_arithmetic(options.compute, problem, tensors);
  }
  Words bytes(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, Memo& memo,
              Walk walk) const override {
    return with_compute(options.compute, [&]<class T>(T*) {
      return need_of<T>(plan, tensors, options, static_cast<ArenaMemo&>(memo), walk).bytes;
    });
  }
  Measured run(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, Memo& memo) const override {
    return with_compute(options.compute,
                        [&]<class T>(T*) { return run_in<T>(plan, tensors, options, static_cast<ArenaMemo&>(memo)); });
  }
};

}  // namespace

const Backend& ram_backend() {
  static const RamBackend ram;
  return ram;
}

}  // namespace redblue
