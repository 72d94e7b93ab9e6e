#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "redblue/runtime/run.hpp"

namespace redblue {

/// How to find out what a run takes.
enum class Walk {
  whole,  ///< through all operations, some 15 ns each: what a run then takes, whatever its loops are
  some,   ///< of a long walk only a part, with the same tiles: for plans that are weighed
};

/// Where plans are carried out: in the caller's memory on the cores of this processor (ram_backend()), or in a place of
/// your own. run(), run_bytes() and count() check shapes, names and overlaps, and ask a backend for the rest: what it
/// holds, the size of what it needs, and to execute this plan on these tensors. Any number of threads may ask at once.
///
/// A backend may lead the schedule of a plan through a machine (plan.row().algorithm->run(machine::Any, ...)), or hand
/// the plan on.
class Backend {
 public:
  /// What a backend remembers from run to run of one plan, such as how much memory it takes.
  struct Memo {
    Memo() = default;
    Memo(const Memo&) = delete;
    Memo& operator=(const Memo&) = delete;
    virtual ~Memo() = default;
  };

  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  /// For messages: "ram".
  virtual std::string_view name() const = 0;
  virtual std::unique_ptr<Memo> new_memo() const { return std::make_unique<Memo>(); }
  /// What it holds: throws Unsupported, naming what it would take, or InvalidProblem, where it cannot run such a
  /// problem on tensors of these types, places and strides.
  virtual void require(const Problem& problem, const Tensors& tensors, const RunOptions& options) const = 0;
  /// The bytes that a run takes beside inputs and outputs. The tensors need have no data.
  virtual Words bytes(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, Memo& memo,
                      Walk walk) const = 0;
  /// Runs the chosen row of the plan, after the forward plan if there is one. `memo` is one that new_memo() made.
  virtual Measured run(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, Memo& memo) const = 0;
  /// Counts the chosen row alone, without data; as count() says it. Here: on the counting machine.
  virtual Measured count(const plan::Plan& plan, const std::function<void()>& now_and_then) const;

  /// Nothing else has it while someone holds it, also where the backend has ended and another lies at its address.
  std::shared_ptr<const void> identity() const { return identity_; }

 private:
  std::shared_ptr<const void> identity_ = std::make_shared<char>();
};

/// The caller's memory, and threads of a ThreadPool.
const Backend& ram_backend();

struct RunArrays;  // redblue/runtime/run.cpp

/// What the runs of one plan remember, so that later ones begin sooner: one for each plan. The plan must outlive it.
/// Any number of threads may use it at once.
class RunMemo {
 public:
  /// What this backend remembers.
  Backend::Memo& of(const Backend& backend);
  /// What a run of the plan's problem reads and writes.
  const RunArrays& arrays(const Problem& problem);

 private:
  std::once_flag once_;
  std::shared_ptr<const RunArrays> arrays_;
  std::mutex mutex_;
  std::vector<std::pair<std::shared_ptr<const void>, std::unique_ptr<Backend::Memo>>> memos_;  // by identity
};

Words run_bytes(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, RunMemo& memo);
Measured run(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, RunMemo& memo);

}  // namespace redblue
