#include "redblue/levels/nest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>

#include "redblue/language/error.hpp"
#include "redblue/levels/counted.hpp"
#include "redblue/planner/run_on.hpp"
#include "redblue/planner/widths.hpp"

namespace redblue::levels {
namespace {

Words words_of(const Level& level, DType word) { return level.bytes / Words(size_of(word)); }

void require(const NestOptions& o) {
  if (o.levels.size() < 2)
    throw InvalidProblem("a nest has two levels or more: give the slow one and each fast memory");
  for (std::size_t i = 1; i < o.levels.size(); ++i) {
    const Level &above = o.levels[i - 1], &level = o.levels[i];
    if (words_of(level, o.word) < 1)
      throw InvalidProblem(fmt::format("level {} has {} bytes, which hold no word of {}", level.name, level.bytes.str(),
                                       name_of(o.word)));
    if (i > 1 && level.bytes >= above.bytes)
      throw InvalidProblem(
          fmt::format("level {} ({} bytes) is not smaller than level {} above it ({} bytes): name "
                      "levels from the slowest to the fastest",
                      level.name, level.bytes.str(), above.name, above.bytes.str()));
  }
}

/// The bound of the whole problem for the words that all memories from this level inwards hold together.
bound::Bound bound_at(const Problem& p, const NestOptions& o, std::size_t level) {
  Words words;
  for (std::size_t i = level; i < o.levels.size(); ++i) words += words_of(o.levels[i], o.word);
  plan::Options options = o.outer;
  options.M = words;
  return bound::best(bound::bounds_of(p.op, plan::bound_problem(p, options)));
}

/// What a walk through the schedule of a plan found.
struct Walked {
  Io io;
  Words peak;
};
/// `calls`: those that levels below carry out; null where there are none.
Walked walk(const plan::Prepared& schedule, CallKinds* calls) {
  machine::Counting counting;
  if (calls == nullptr) {
    machine::Any any(counting);
    schedule.run(any);
    return {counting.io(), counting.peak()};
  }
  Nested nested(counting, *calls);
  machine::Any any(nested);
  schedule.run(any);
  return {counting.io(), nested.peak()};
}

/// A plan with its words, and the calls that levels below carry out, whatever these are.
struct Outermost {
  plan::Plan plan;
  Io io;
  Words peak;
  CallKinds calls;
  std::vector<std::unique_ptr<const plan::Prepared>> schedules;  ///< own what masks of calls point to

  Outermost(const plan::Plan& p, bool has_inner) : plan(p) {
    CallKinds* const below = has_inner ? &calls : nullptr;
    const auto walk_through = [&](plan::Plan& walked) {
      schedules.push_back(walked.row().algorithm->prepare(walked.counted(), walked.row().tiling));
      const Walked found = walk(*schedules.back(), below);
      walked.rows[walked.chosen].footprint = found.peak;
      io = io + found.io;
      peak = std::max(peak, found.peak);
    };
    walk_through(plan);
    if (p.forward == nullptr) return;
    auto forward = std::make_shared<plan::Plan>(*p.forward);
    walk_through(*forward);
    plan.forward = std::move(forward);
  }
};

/// Bytes that an array moves at a border: at the outermost as wide as slow memory has it.
Words bytes_of(const Io& io, const NestOptions& o, const Problem& p, bool outermost) {
  if (outermost && plan::has_widths(o.outer)) return plan::bytes_of(io, o.outer, p.op).total();
  return io.total() * Words(size_of(o.word));
}

/// `step`: of inner levels but the last. `bounds`: of each border.
Nest nest_of(const Outermost& outermost, const NestOptions& o, index_t step, const std::vector<bound::Bound>& bounds) {
  const plan::Plan& plan = outermost.plan;
  Nest nest{.outer = plan, .levels = o.levels};
  for (std::size_t i = 2; i < o.levels.size(); ++i) {
    Grain grain = o.grain;
    if (i + 1 < o.levels.size()) grain.passing = std::max(grain.passing, step);
    nest.inner.push_back({words_of(o.levels[i], o.word), grain});
  }
  std::vector<InnerWords> inner;
  if (!nest.inner.empty()) {
    InnerCounts counts(nest.inner);
    inner = counts.words(outermost.calls);
    nest.calls = counts.calls(outermost.calls);
  }
  for (std::size_t i = 1; i < o.levels.size(); ++i) {
    const Level& level = o.levels[i];
    Border b{.above = o.levels[i - 1].name, .below = level.name, .M = words_of(level, o.word)};
    b.held = i == 1 ? outermost.peak : inner[i - 2].peak;
    b.io = i == 1 ? outermost.io : inner[i - 2].io;
    b.bytes = bytes_of(b.io, o, plan.problem, i == 1);
    b.bound = bounds[i - 1];
    if (b.bound.words > 0) b.ratio = b.io.total().to_double() / b.bound.words.to_double();
    if (level.bandwidth > 0) b.seconds = b.bytes.to_double() / level.bandwidth;
    nest.borders.push_back(std::move(b));
  }
  if (o.macs_per_second > 0) nest.compute_seconds = plan.flops().to_double() / 2 / o.macs_per_second;
  if (!nest.compute_seconds) return nest;
  double here = *nest.compute_seconds;
  for (std::size_t i = 1; i < nest.borders.size(); ++i) {
    if (!nest.borders[i].seconds) return nest;
    here += *nest.borders[i].seconds;
  }
  if (const auto& outside = nest.borders.front().seconds) nest.seconds = std::max(*outside, here);
  return nest;
}

/// The steps that a level (1: the outermost plan's) may take on the side that passes: a longer one leaves less memory
/// for the side that stays, and saves traffic below. The last level takes the grain.
std::vector<index_t> steps_tried(const NestOptions& o, const Problem& p, std::size_t level) {
  if (level + 1 >= o.levels.size() || o.outer.tiling) return {1};
  constexpr index_t kFew = 16, kMost = 6144;  // multiples of register tiles
  std::vector<index_t> list;
  for (index_t step = kFew; step <= kMost; step = step == kFew ? 12 * kFew : 2 * step) {
    list.push_back(step);
    if (step >= std::max(p.n_q, p.n_k)) break;
  }
  return list;
}

/// The plan with steps so long, where these move the same words: the level below has the scores of a step.
plan::Plan with_longer_steps(plan::Plan plan, index_t step) {
  plan::Row& row = plan.rows[plan.chosen];
  const Sizes x = plan.problem.sizes();
  const Io io = row.algorithm->io(x, row.tiling);
  const auto is_as_good = [&] {
    return row.algorithm->allows(x, row.tiling) && row.algorithm->io(x, row.tiling) == io;
  };
  for (schedule::TileSize& size : row.tiling) {
    const index_t before = size.value;
    if (before >= step) continue;
    size.value = step;
    if (!is_as_good()) {
      size.value = before;
      continue;
    }
    // No tile is longer than its side of the problem: what is beyond that takes no words.
    const Words footprint = row.algorithm->footprint(x, row.tiling);
    for (const index_t side : {x.n_q, x.n_k, x.d, x.d_v}) {
      const index_t longer = size.value;
      if (side >= longer) continue;
      size.value = std::max(side, before);
      if (!is_as_good() || row.algorithm->footprint(x, row.tiling) != footprint) size.value = longer;
    }
  }
  if (plan.forward != nullptr)
    plan.forward = std::make_shared<const plan::Plan>(with_longer_steps(*plan.forward, step));
  return plan;
}

/// What is compared: modelled seconds, where they are known without the outermost memory; else the largest ratio of
/// what moves at a border to its bound.
double least_of(const Nest& nest, bool by_time) {
  double most = 0, here = nest.compute_seconds.value_or(0);
  for (const Border& b : nest.borders) {
    most = std::max(most, b.io.total().to_double() / std::max(1.0, b.bound.words.to_double()));
    here += b.seconds.value_or(0);
  }
  if (!by_time) return most;
  return nest.seconds.value_or(here);
}

/// Throws Unsupported where a kernel does not say how it divides.
class KernelsDivide : public machine::Passing<KernelsDivide, machine::Null> {
  using Passes = Passing<KernelsDivide, machine::Null>;

 public:
  using Passes::Passes;

  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    const kernel::AnyKernel& any = kernel::erase(k);
    if (known_.contains(any.name())) return;
    std::vector<Shape> shapes;
    for (const Arg& a : args) shapes.push_back(a.shape());
    const Division checked(any, shapes);
    known_.insert(any.name());
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    run(k, args);
  }

 private:
  std::set<std::string_view> known_;
};

/// The cheapest plan whose kernels all say how they divide, where there are levels below. Throws Unsupported where
/// there is none.
plan::Plan plan_that_divides(const Problem& problem, const plan::Options& options, bool has_inner) {
  plan::Plan plan = plan::make_plan(problem, options);
  if (!has_inner) return plan;
  const auto choose = [](plan::Plan& p) {
    std::exception_ptr why;
    for (p.chosen = 0; p.chosen < p.rows.size() && p.may_choose(p.row()); ++p.chosen) {
      try {
        machine::Null null;
        KernelsDivide check(null);
        machine::Any any(check);
        run_on(any, p, unlike_instances(p));
        return;
      } catch (const Unsupported&) {
        if (why == nullptr) why = std::current_exception();
      }
    }
    std::rethrow_exception(why);
  };
  choose(plan);
  if (plan.forward == nullptr) return plan;
  auto forward = std::make_shared<plan::Plan>(*plan.forward);
  choose(*forward);
  plan.forward = std::move(forward);
  return plan;
}

}  // namespace

Nest make_nest(const Problem& problem, const NestOptions& options) {
  require(options);
  std::optional<Nest> best;
  std::exception_ptr refused;
  const bool has_inner = options.levels.size() > 2;
  const Words M = words_of(options.levels[1], options.word);
  std::vector<bound::Bound> bounds;
  bounds.reserve(options.levels.size() - 1);
  for (std::size_t i = 1; i < options.levels.size(); ++i) bounds.push_back(bound_at(problem, options, i));
  std::set<std::string> considered;
  const auto consider = [&](const plan::Plan& plan) {
    std::string text = plan::text_of(plan.row());
    if (plan.forward != nullptr) text += " after " + plan::text_of(plan.forward->row());
    if (!considered.insert(std::move(text)).second) return;
    const Outermost outermost(plan, has_inner);
    if (outermost.peak > M) redblue::detail::throw_capacity(outermost.peak, M);
    for (const index_t step : steps_tried(options, problem, 2)) {
      Nest nest = nest_of(outermost, options, step, bounds);
      if (!best || least_of(nest, options.by_time) < least_of(*best, options.by_time)) best = std::move(nest);
    }
  };
  const auto plan_with = [&](index_t multiple) {
    plan::Options outer = options.outer;
    outer.M = M;
    outer.multiple.query = std::lcm(outer.multiple.query, multiple);
    outer.multiple.key = std::lcm(outer.multiple.key, multiple);
    return plan_that_divides(problem, outer, has_inner);
  };
  // A step may be too long for a level, or leave room for schedules only whose kernels do not divide.
  const auto attempt = [&](const auto& f) {
    try {
      f();
    } catch (const CapacityError&) {
      if (refused == nullptr) refused = std::current_exception();
    } catch (const Unsupported&) {
      if (refused == nullptr) refused = std::current_exception();
    }
  };
  const std::vector<index_t> steps = steps_tried(options, problem, 1);
  for (const index_t step : steps) attempt([&] { consider(plan_with(step)); });
  if (has_inner && !options.outer.tiling)
    attempt([&] {
      const plan::Plan shortest = plan_with(1);
      for (const index_t step : steps) attempt([&] { consider(with_longer_steps(shortest, step)); });
    });
  if (!best) std::rethrow_exception(refused);
  return std::move(*best);
}

}  // namespace redblue::levels
