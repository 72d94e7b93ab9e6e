#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "redblue/files/partial/partial_run.hpp"
#include "redblue/hardware/isa.hpp"
#include "redblue/levels/sizes.hpp"
#include "redblue/machines/files/file_queue.hpp"
#include "redblue/machines/resumable.hpp"
#include "redblue/planner/planner.hpp"
#include "redblue/version.hpp"

namespace redblue {

/// The schedule with all its tiles, those of cores that have some of their own, too.
inline std::string tiles_text(const plan::Row& row) {
  std::string text = plan::text_of(row);
  for (const schedule::TileSize& size : row.tiling)
    for (const auto& [core, value] : size.own)
      text += fmt::format("; {}={} for {} x {} ({}, {}, {})", size.name, value, core.n_q, core.n_k, core.lo, core.hi,
                          core.prefix);
  return text;
}

/// What must be the same for a run of this plan to be resumed to the same bits.
inline std::vector<file::partial::Fact> facts_of(const plan::Plan& plan, DType compute,
                                                 const std::vector<levels::Inner>& inner) {
  std::vector<file::partial::Fact> facts{{"redblue", std::string(kVersion)},
                                         {"compute type", std::string(redblue::name_of(compute))},
                                         {"instruction set", std::string(redblue::name_of(best_isa()))}};
  if (plan.forward) facts.emplace_back("schedule of the forward pass", tiles_text(plan.forward->row()));
  if (!plan.rows.empty()) facts.emplace_back("schedule", tiles_text(plan.row()));
  facts.emplace_back("order of queries and keys", std::string(redblue::name_of(plan.problem.order)));
  std::string text;
  for (const levels::Inner& level : inner)
    text += fmt::format("{} words, {} by {} in {} parts; ", level.M.str(), level.grain.kept, level.grain.passing,
                        level.grain.parts);
  facts.emplace_back("levels inside fast memory (parts: --threads)", text);
  return facts;
}

/// The checkpoints of one run over files, where it has any (`partial` is not null): a run of one part after another.
class Checkpoints {
 public:
  /// At least `every_s` seconds lie between two of them, and as many as it takes for them to be a twentieth of the time
  /// at most; with 0 there is one before every operation.
  Checkpoints(file::partial::PartialRun* partial, double every_s)
      : partial_(partial), every_(every_s), next_(Clock::now() + std::chrono::duration_cast<Clock::duration>(every_)) {}

  /// A part of the run begins, where an earlier process had come to. What the one before it wrote is kept; after the
  /// last part finish() does that.
  machine::Resumption begin_part() {
    if (partial_ == nullptr) return {};
    if (std::exchange(ended_, false)) partial_->checkpoint({part_, 0});
    const auto [part, operations] = partial_->position();
    return {.done = part_ > part ? 0 : part_ < part ? machine::kAllOperations : operations};
  }
  /// What passes through this queue is written so that it can be undone.
  void watch(machine::FileQueue& queue) {
    if (partial_ == nullptr) return;
    queue.before_write([this](const file::io::OpenFile& file, index_t offset, index_t bytes) {
      partial_->before_write(file, offset, bytes);
    });
  }
  /// Does the same, makes checkpoints of this part of the run, and lets it begin at the last one. `fast` is all that
  /// the machine holds between two operations.
  template <class Fast>
  void watch(machine::FileQueue& queue, machine::Resumption& part, const Fast& fast) {
    watch(queue);
    if (partial_ == nullptr) return;
    part.reached = [this, fast] { partial_->restore_fast(std::as_writable_bytes(fast())); };
    part.between = [this, &queue, fast](index_t operations) {
      const auto start = Clock::now();
      if (start < next_) return;
      queue.finish_writes();
      partial_->checkpoint({part_, operations}, std::as_bytes(fast()));
      plan_next(start);
    };
  }
  /// All of the part is in the files.
  void end_part(const machine::Resumption& part) {
    const bool was_over = part.done == machine::kAllOperations;
    if (part.operations < part.done && !was_over) throw std::logic_error("a run was resumed behind its end");
    ++part_;
    left_out_ += was_over ? part.operations : part.done;
    ended_ = !was_over;
  }
  /// Operations of the parts that have ended, which an earlier process did.
  index_t left_out() const { return left_out_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kShare = 20;

  /// After a checkpoint that began then.
  void plan_next(Clock::time_point start) {
    const auto now = Clock::now();
    const auto every = std::chrono::duration_cast<Clock::duration>(every_);
    next_ = every.count() == 0 ? now : now + std::max(every, (kShare - 1) * (now - start));
  }

  file::partial::PartialRun* partial_;
  std::chrono::duration<double> every_;
  Clock::time_point next_;
  index_t part_ = 0, left_out_ = 0;
  bool ended_ = false;  ///< a part has, and there was no checkpoint since
};

}  // namespace redblue
