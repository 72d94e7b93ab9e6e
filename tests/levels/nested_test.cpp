#include <gtest/gtest.h>

#include <random>

#include "redblue/levels/counted.hpp"
#include "redblue/levels/inner_ram.hpp"
#include "redblue/machines/any.hpp"
#include "redblue/verify/arrays.hpp"
#include "redblue/verify/claims.hpp"
#include "schedules/registered.hpp"
#include "support/cases.hpp"

/// Every schedule whose calls are carried out by levels below: the same numbers, and the words that were counted.
namespace redblue::test {
namespace {

using levels::Inner;

/// Levels that are large enough for the smallest ranges of small problems.
std::vector<Inner> some_levels(const Sizes& x, unsigned seed) {
  std::mt19937 random(seed);
  const auto draw = [&](index_t least, index_t most) {
    return std::uniform_int_distribution<index_t>(least, most)(random);
  };
  const index_t least = 8 * (x.d + x.d_v + x.d_in + x.n_k + x.n_q + 8);
  std::vector<Inner> list{{Words(draw(2 * least, 4 * least)), {draw(1, 3), draw(1, 3)}}};
  if (draw(0, 1) == 1) list.push_back({Words(draw(least, 2 * least)), {draw(1, 2), draw(1, 2)}});
  return list;
}

template <class T>
struct NestedRun {
  claims::Arrays<T> arrays;
  Io outer;
  std::vector<typename levels::InnerLevels<T>::Moved> moved;
};

template <class T>
NestedRun<T> run_nested(const plan::Schedule& s, const Sizes& x, const plan::Tiling& t,
                        const std::vector<Inner>& list) {
  NestedRun<T> run{claims::Arrays<T>(s, x, t), {}, {}};
  levels::InnerLevels<T> below(list, 1, default_pool(), 2, kernel::implementations<T>(best_isa()));
  machine::WorkerStates<T, machine::CallerMemory<T>> states;
  states.implementations = &kernel::kPortable<T>;
  states.below = &below;
  states.slow = {run.arrays.slow()};
  states.arenas.emplace_back(s.footprint(x, t).to_index());
  const auto main = [&](machine::Team& team) {
    states.team = &team;
    machine::Ram<T> ram(states);
    machine::Counted counted(ram);
    machine::Any any(counted);
    s.run(any, {x, *run.arrays.problem.scale, 1}, t);
    run.outer = counted.io();
  };
  const std::unique_ptr<ThreadPool> one = make_pool(1);
  machine::Team::run(*one, 1, main);
  run.moved = below.moved();
  return run;
}

/// Words at the inner levels, counted without data.
std::vector<levels::InnerWords> counted(const plan::Schedule& s, const Sizes& x, const plan::Tiling& t, double scale,
                                        const std::vector<Inner>& list) {
  levels::CallKinds calls;
  machine::Counting counting;
  levels::Nested nested(counting, calls);
  machine::Any any(nested);
  const auto prepared = s.prepare({x, scale, 1}, t);  // owns what masks of calls point to
  prepared->run(any);
  return levels::InnerCounts(list).words(calls);
}

template <class T>
void require_alike(const plan::Schedule& s, const Sizes& x, const plan::Tiling& t, double tolerance) {
  const std::vector<Inner> list = some_levels(x, static_cast<unsigned>(x.n_q + 3 * x.n_k + 7 * x.d));
  const NestedRun<T> run = run_nested<T>(s, x, t, list);
  if (run.outer != s.io(x, t)) throw Error("the outermost level moves other words");
  const std::vector<levels::InnerWords> words = counted(s, x, t, *run.arrays.problem.scale, list);
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (words[i].io.total() != run.moved[i].words)
      throw Error("level " + std::to_string(i) + ": counted " + words[i].io.total().str() + ", moved " +
                  run.moved[i].words.str());
    if (words[i].peak > list[i].M) throw Error("level " + std::to_string(i) + " holds more than it has");
    if (words[i].peak != run.moved[i].peak) throw Error("level " + std::to_string(i) + ": another peak");
  }
  claims::Arrays<T> plain(s, x, t);
  machine::Ram<T> ram(s.footprint(x, t).to_index(), plain.slow(), kernel::kPortable<T>);
  machine::Any any(ram);
  s.run(any, {x, *plain.problem.scale, 1}, t);
  for (const SlowArray output : plan::outputs_of(plain.problem.op)) {
    const double most = 1 + claims::largest_entry(plain.template matrix<T>(output));
    const double gap = claims::largest_gap(run.arrays.words.at(output), plain.words.at(output));
    if (!(gap <= tolerance * most)) throw Error(std::string(name_of(output)) + " is off by " + std::to_string(gap));
  }
}

/// Does every kernel of the schedule say how it divides?
bool divides(const plan::Schedule& s, const Sizes& x, const plan::Tiling& t) {
  try {
    counted(s, x, t, 1, {{Words(1 << 20), {}}});
    return true;
  } catch (const Unsupported&) {
    return false;
  }
}

}  // namespace

class NestedLevels : public testing::TestWithParam<Registered> {};
INSTANTIATE_TEST_SUITE_P(All, NestedLevels, testing::ValuesIn(all_schedules()),
                         [](const auto& info) { return test_name_of(info.param); });

/// Kernels that go over lists of pairs do not say how they divide, nor do those of most approximations.
TEST_P(NestedLevels, CarryOutEveryScheduleWithoutListsOfPairs) {
  const plan::Schedule& s = *GetParam();
  const bool lists = s.name.find("sparse") != s.name.npos || s.name.find("strips") != s.name.npos;
  if (lists || s.traits.method != MethodKind::exact) return;
  std::mt19937 random(7);
  const claims::Draw draw = [&](index_t least, index_t most) {
    return std::uniform_int_distribution<index_t>(least, most)(random);
  };
  for (int i = 0; i < 20; ++i) {
    const Sizes x = claims::any_case(draw).sizes;
    if (!claims::can_solve(s, x)) continue;
    if (const auto t = claims::any_tiling(s, x, draw)) {
      EXPECT_TRUE(divides(s, x, *t));
    }
  }
}

TEST_P(NestedLevels, GiveTheSameNumbersAndMoveWhatIsCounted) {
  const claims::Claim claim{"NestedLevels", [](const plan::Schedule& s, const Sizes& x, const plan::Tiling& t) {
                              if (x.fast != Residence{} || !divides(s, x, t)) return;
                              require_alike<double>(s, x, t, 1e-10);
                              require_alike<float>(s, x, t, 2e-3);
                            }};
  claims::check(*GetParam(), claim, cases(15), 5);
}

}  // namespace redblue::test
