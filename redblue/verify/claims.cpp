#include "redblue/verify/claims.hpp"

#include <fmt/format.h>

#include <random>
#include <sstream>

#include "redblue/bounds/bound.hpp"
#include "redblue/machines/any.hpp"
#include "redblue/machines/checked.hpp"
#include "redblue/machines/counting.hpp"
#include "redblue/machines/observed.hpp"
#include "redblue/machines/ram/ram.hpp"
#include "redblue/machines/trace.hpp"
#include "redblue/machines/weighed.hpp"
#include "redblue/verify/answering.hpp"
#include "redblue/verify/arrays.hpp"
#include "redblue/verify/bytes_moved.hpp"
#include "redblue/verify/case_text.hpp"
#include "redblue/verify/reordered.hpp"
#include "redblue/verify/sabotaged.hpp"

namespace redblue::claims {

namespace {

using plan::Schedule;
using plan::Tiling;

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw Broken(fmt::format(text, std::forward<Args>(args)...));
}

/// On machine m, behind the virtual interface.
template <class M>
void run(M& m, const Schedule& s, const plan::Instances& x, const Tiling& t) {
  machine::Any any(m);
  s.run(any, x, t);
}
template <class T, class M>
void run(M& m, const Schedule& s, const Arrays<T>& a, const Tiling& t) {
  run(m, s, plan::Instances{a.sizes, *a.problem.scale, 1}, t);
}

/// Run on arrays of its own, in exactly as many words as its footprint.
template <class T>
Arrays<T> ran(const Schedule& s, const Sizes& x, const Tiling& t,
              const kernel::Implementations<T>& implementations = kernel::implementations<T>(best_isa())) {
  Arrays<T> a(s, x, t);
  machine::Ram<T> ram(s.footprint(x, t).to_index(), a.slow(), implementations);
  run(ram, s, a, t);
  return a;
}

/// Query heads of one position stay together: under a pattern, one of them may see no key.
bool has_queries_without_keys(const Sizes& x) {
  bool found = false;
  if (x.sequences == nullptr) return found;
  for (const Sequence& one : x.sequences->list)
    if (one.pattern != nullptr)
      one.pattern->rows().for_groups([&](Range, std::span<const Range> runs) { found = found || runs.empty(); });
  return found;
}
/// A footprint is exact where each query of the cores sees a key. Elsewhere a run may hold less: formulas know blocks
/// by their size, and all blocks of the largest size may be without a key.
bool is_footprint(const Words& counted, const Words& formula, const Sizes& x) {
  return counted == formula || (counted < formula && has_queries_without_keys(x));
}

/// Throws unless the machine counted what the schedule says for these decisions.
template <class M>
void require_counts(const M& m, const Schedule& s, const Sizes& x, const Tiling& t, std::string_view how,
                    const Decisions& decisions) {
  const auto [io, footprint, macs] = s.costs(x, t, decisions);
  const Io counted = m.io();
  const auto require_equal = [&](const std::string& what, const Words& count, const Words& formula) {
    if (count != formula) fail("{}: {} counted {}, the formula says {}", what, how, count.str(), formula.str());
  };
  for (std::size_t a = 0; a < kSlowArrays; ++a) {
    require_equal(fmt::format("reads of {}", kSlowArrayNames[a]), counted.reads[a], io.reads[a]);
    require_equal(fmt::format("writes of {}", kSlowArrayNames[a]), counted.writes[a], io.writes[a]);
  }
  if (!is_footprint(m.peak(), footprint, x)) require_equal("footprint", m.peak(), footprint);
  require_equal("multiply-adds", m.macs(), macs);
  if (io.total() > s.io(x, t).total() || footprint > s.footprint(x, t))
    fail("{}: with {} of {} decisions the worst it costs more than what it says is the most", how, decisions.worst,
         decisions.asked);
}
template <class M>
void require_counts(const M& m, const Schedule& s, const Sizes& x, const Tiling& t, std::string_view how) {
  require_counts(m, s, x, t, how, m.decisions());
}

/// An output that it reads again must be held in the arithmetic type; lse always is.
void require_it_says_that_it_rewrites(const Schedule& s, const Sizes& x, const Tiling& t) {
  if (s.traits.rewrites_outputs || x.accumulate) return;  // given ones have the arithmetic type
  const Io io = s.io(x, t);
  for (const SlowArray a : plan::outputs_of(s.operation))
    if (a != SlowArray::lse && !is_of_modifiers(a) && io.reads[index_of(a)] > 0)
      fail("it reads its output {} again, and its traits do not say rewrites_outputs", name_of(a));
}

void io_is_the_formula(const Schedule& s, const Sizes& x, const Tiling& t) {
  require_it_says_that_it_rewrites(s, x, t);
  const plan::Instances one{x, 1, 1};
  for (const Answers how : answers_for(s)) {
    Answering answering(how);
    machine::Counted counted(answering);
    run(counted, s, one, t);
    require_counts(counted, s, x, t, "without data");
    if (counted.resident() != 0) fail("{} words are resident at the end", counted.resident());
    const Decisions& decided = counted.decisions();
    if (decided.worst == decided.asked && (counted.io() != s.io(x, t) || counted.macs() != s.macs(x, t)))
      fail("where every decision is the worst it costs something else than io and macs say");
    if (s.decided == nullptr && decided.asked > 0) fail("it asks for decisions, and has no costs that depend on them");
  }
}

/// The footprint holds in the unit of the sizes, too.
void footprint_is_exact_in_bytes(const Schedule& s, const Sizes& x, const Tiling& t) {
  for (const Answers how : answers_for(s)) {
    Answering answering(how);
    machine::Weighed weighed(answering, x.fast);
    run(weighed, s, {x, 1, 1}, t);
    const Words footprint = s.costs(x, t, answering.decisions()).footprint;
    if (is_footprint(weighed.peak(), footprint, x) && footprint <= s.footprint(x, t)) continue;
    std::string widths;
    for (const SlowArray a : plan::arrays_of(s.operation)) widths += fmt::format(" {}={}", name_of(a), x.word(a).str());
    fail(
        "with widths{} and rows padded to multiples of {} and by {}, counted {} bytes, the formula says {}, {} at most",
        widths, x.fast.row_multiple, x.fast.row_extra, weighed.peak().str(), footprint.str(), s.footprint(x, t).str());
  }
}

void footprint_is_exact(const Schedule& s, const Sizes& x, const Tiling& t) {
  Arrays<double> a(s, x, t);
  index_t F = s.footprint(x, t).to_index();
  if (s.decided != nullptr) {  // of what these data make it decide
    machine::Ram<double> most(F, a.slow());
    machine::Counted counted(most);
    run(counted, s, a, t);
    F = s.decided(x, t, counted.decisions()).footprint.to_index();
  }
  machine::Ram<double> enough(F, a.slow()), short_by_one(F - 1, a.slow());
  run(enough, s, a, t);
  if (has_queries_without_keys(x)) return;
  try {
    run(short_by_one, s, a, t);
  } catch (const CapacityError&) {
    return;
  }
  fail("it runs in one word less than its footprint of {}", F);
}

/// A referee that knows the arrays of the schedule with this tiling.
machine::Referee referee_for(const Schedule& s, const Sizes& x, const Tiling& t) {
  machine::Referee r(s.footprint(x, t));
  for (const SlowArray a : plan::inputs_of(s.operation)) r.input(plan::matrix_of(s.operation, x, a));
  for (const SlowArray a : plan::outputs_of(s.operation)) {
    const SlowMatrix output = plan::matrix_of(s.operation, x, a);
    x.accumulate ? r.given_output(output) : r.output(output);
  }
  for (const SlowMatrix& m : s.workspace(x, t)) r.workspace(m);
  return r;
}

void keeps_the_rules(const Schedule& s, const Sizes& x, const Tiling& t) {
  for (const Answers how : answers_for(s)) {
    Answering answering(how);
    machine::Referee referee = referee_for(s, x, t);
    machine::Checked checked(answering, referee);
    run(checked, s, {x, 1, 1}, t);
    referee.finish();
  }
}

template <class T>
void require_dense_numbers(const Arrays<T>& a, double tolerance) {
  const auto wanted = a.wanted();
  for (const SlowArray output : plan::outputs_of(a.problem.op)) {
    const oracle::Matrix<long double>& w = wanted.at(output);
    const double gap = largest_gap(a.words.at(output), w.words), allowed = tolerance * (1 + largest_entry(w));
    if (!(gap <= allowed)) fail("{} in {} errs by {}, allowed {}", name_of(output), name_of(kDTypeOf<T>), gap, allowed);
  }
}
/// It makes exact those rows that the oracle makes exact.
void require_its_rows_are_exact(const Schedule& s, const Sizes& x, const Tiling& t) {
  Arrays<double> a(s, x, t);
  machine::Ram<double> ram(s.footprint(x, t).to_index(), a.slow());
  machine::Counted counted(ram);
  run(counted, s, a, t);
  const index_t wanted = a.template dense<long double>(false).exact_rows();
  if (counted.decisions().worst != wanted) fail("it makes {} rows exact, not {}", counted.decisions().worst, wanted);
}
void equals_dense_attention(const Schedule& s, const Sizes& x, const Tiling& t) {
  require_dense_numbers(ran<double>(s, x, t), 1e-11);
  if (x.by_rows()) require_its_rows_are_exact(s, x, t);
  require_dense_numbers(ran<float>(s, x, t), 1e-3);
}

/// The counters see the same words on a machine that computes as without data, and change no bit of a run.
void runs_alike_on_every_machine(const Schedule& s, const Sizes& x, const Tiling& t) {
  const auto plain = ran<float>(s, x, t);
  Arrays<float> a(s, x, t);
  machine::Ram<float> ram(s.footprint(x, t).to_index(), a.slow());
  machine::Counted counted(ram);
  const machine::Observed<machine::Counted<machine::Ram<float>>>::Callback nothing;
  machine::Observed observed(counted, nothing);
  run(observed, s, a, t);
  if (!a.same_bits(plain)) fail("a counted run gives other bits than a plain one");
  require_counts(counted, s, x, t, "a run in f32");
}

// This takes the portable kernels: a trace holds the parts of composites, which fused implementations round in other
// places.
void traces_replay_to_the_same_bits(const Schedule& s, const Sizes& x, const Tiling& t) {
  const auto& portable = kernel::implementations<double>(Isa::portable);
  const auto direct = ran<double>(s, x, t, portable);
  machine::Trace trace;
  Decisions decisions;
  {  // on the data, which may say what the operations are
    Arrays<double> same(s, x, t);
    machine::Ram<double> ram(s.footprint(x, t).to_index(), same.slow(), portable);
    machine::Counted counted(ram);
    machine::Traced traced(counted, trace);
    run(traced, s, same, t);
    decisions = counted.decisions();
  }
  std::stringstream text;
  write_text(text, trace);

  Arrays<double> a(s, x, t);
  machine::Ram<double> ram(s.footprint(x, t).to_index(), a.slow(), portable);
  machine::Counted counted(ram);
  machine::replay(machine::read_text(text), counted);
  if (!a.same_bits(direct)) fail("its trace, read back from text, replays to other bits");
  require_counts(counted, s, x, t, "the replay of its trace", decisions);
}

void gives_the_same_bits_in_any_order_of_each(const Schedule& s, const Sizes& x, const Tiling& t) {
  const auto direct = ran<double>(s, x, t);
  for (const Order order : {Order::reverse, Order::shuffled}) {
    Arrays<double> a(s, x, t);
    machine::Ram<double> ram(s.footprint(x, t).to_index(), a.slow());
    machine::Counted counted(ram);
    Reordered reordered(counted, order);
    run(reordered, s, a, t);
    if (!a.same_bits(direct)) fail("the rounds of its `each` in another order give other bits");
    require_counts(counted, s, x, t, "another order of `each`");
  }
}

void moves_no_less_than_the_bounds(const Schedule& s, const Sizes& x, const Tiling& t) {
  const std::string_view restricted = s.restricted_bound(x);
  bool known = restricted.empty() || x.score != Score::softmax;  // other scores may have no such bound
  Words least_width = x.word(SlowArray::lse);
  for (const SlowArray a : plan::arrays_of(s.operation)) least_width = std::min(least_width, x.word(a));
  for (const Sources sources : {Sources::distinct, Sources::shared, Sources::self}) {
    if (sources == Sources::distinct && s.traits.shared_source) continue;
    if (sources == Sources::self && x.n_q != x.n_k) continue;
    // Where given outputs stay as they are, nothing is resident: bounds are for one word at least.
    const Words bytes = std::max(s.footprint(x, t), least_width);
    const bound::AttentionProblem problem{x, 1, bytes / least_width, sources, bytes};
    for (const bound::Bound& b : bound::bounds_of(s.operation, problem)) {
      known = known || (b.status == "restricted" && b.name == restricted);
      const bool binds = b.holds && (b.status != "restricted" || b.name == restricted);
      if (const Words moved = s.costs(x, t, {}).io.total(); binds && moved < b.words)
        fail("it moves {} words, less than bound {} ({})", moved.str(), b.name, b.words.str());
    }
  }
  if (!known) fail("its restricted_bound {} is no restricted bound of {}", restricted, name_of(s.operation));
}

void can_skip_or_repeat_nothing(const Schedule& s, const Sizes& x, const Tiling& t, Answers how) {
  using enum Slip;
  std::array<index_t, 3> seen{};
  const auto passes = [&](Slip slip, index_t target) {
    Answering answering(how);
    machine::Counted counted(answering);
    machine::Referee referee = referee_for(s, x, t);
    machine::Checked checked(counted, referee);
    Sabotaged sabotaged(checked, slip, target);
    try {
      run(sabotaged, s, {x, 1, 1}, t);
      referee.finish();
    } catch (const RuleError&) {
      return false;
    }
    if (slip == none) seen = {sabotaged.loads(), sabotaged.stores(), sabotaged.updates()};
    const schedule::Costs costs = s.costs(x, t, counted.decisions());
    return counted.io() == costs.io && is_footprint(counted.peak(), costs.footprint, x);
  };
  if (!passes(none, 0)) fail("it breaks a rule, or its count is not its formula");
  const auto [loads, stores, updates] = seen;
  constexpr index_t kTargets = 300;  // each costs one run; of more, try a sample
  const index_t stride = 1 + (loads + stores + updates) / kTargets;
  const auto require_caught = [&](std::string_view what, index_t count, Slip skipped, Slip repeated) {
    for (index_t k = 0; k < count; k += stride)
      for (const Slip slip : {skipped, repeated})
        if (passes(slip, k)) fail("{} {} could be {}", what, k, slip == skipped ? "left out" : "done twice");
  };
  if (loads + stores + updates == 0 && !x.accumulate) fail("it moves nothing");  // given outputs may stay as they are
  require_caught("load", loads, skips_a_load, loads_twice);
  require_caught("store", stores, skips_a_store, stores_twice);
  require_caught("update", updates, skips_an_update, updates_twice);
}

/// Every load, store and update, left out or done twice, is caught by the counts or by the referee.
void can_skip_or_repeat_nothing(const Schedule& s, const Sizes& x, const Tiling& t) {
  for (const Answers how : answers_for(s)) can_skip_or_repeat_nothing(s, x, t, how);
}

std::string text_of(const Tiling& t) { return " " + plan::text_of(t); }

/// The rounds of a random case: what is drawn depends on the seed alone. `share` of a hundred shrinks it.
class Random {
 public:
  Random(unsigned seed, index_t share) : random_(seed), share_(share) {}
  index_t operator()(index_t least, index_t most) {
    const index_t drawn = std::uniform_int_distribution<index_t>(0, most - least)(random_);
    return least + drawn * share_ / 100;
  }

 private:
  std::mt19937 random_;
  index_t share_;
};

/// What became of a claim on a random case: did any tiling run, and if it does not hold, how.
struct Outcome {
  bool ran = false;
  std::optional<std::string> broken{};
};
Outcome try_on(const Schedule& s, const Claim* claim, unsigned seed, index_t share) {
  Random random(seed, share);
  const Draw draw = std::ref(random);
  Case c = any_case(draw);
  // Some schedules know one score function, no mask, or square problems only: then the case gives way.
  if (!can_solve(s, c.sizes)) c.sizes.score = s.traits.only_score.value_or(Score::softmax);
  if (Modifiers& m = c.sizes.modifiers; c.sizes.score == Score::softmax && m.bias_gradient && m.bias_over_keys) {
    m.bias_gradient = false;
    m.bias_gradient_of_rows = true;  // as Problem::modifiers has it
  }
  ask_for(s, c.sizes, draw);
  if (is_projected(s.operation) && c.sizes.sequences != nullptr) {  // as Problem::sequences says
    Sequences all = *c.sizes.sequences;
    close_gaps(all.list, c.sizes.n_q / c.sizes.mask.group, c.sizes.n_k);
    c.sizes.sequences = std::make_shared<const Sequences>(std::move(all));
  }
  if (is_of_pairs(s.operation)) {  // as Problem::modifiers says
    c.sizes.modifiers.sinks = false;
    c.sizes.modifiers.dropout = 0;
  }
  if (s.operation != Operation::backward) {
    Modifiers& m = c.sizes.modifiers;
    const bool second = s.operation == Operation::second;
    m.bias_moves = has_directions(s.operation) && m.forms_bias_gradient();
    m.bias_gradient = m.bias_moves && second;
    m.sinks_move = has_directions(s.operation) && m.sinks_gradient;
    m.sinks_gradient = m.sinks_move && second;
    m.bias_gradient_of_rows = false;
    c.sizes.lse_gradient = c.sizes.lse_gradient && s.operation == Operation::second;
  }
  if (!can_solve(s, c.sizes) || c.sizes.statistics() == 0) c.sizes.lse_gradient = false;
  if (!can_solve(s, c.sizes))
    c.sizes.modifiers.bias_gradient = c.sizes.modifiers.bias_moves && c.sizes.modifiers.bias_gradient;
  if (!can_solve(s, c.sizes)) c.sizes.modifiers.softcap = c.sizes.modifiers.dropout = 0;
  if (!can_solve(s, c.sizes)) c.sizes.modifiers = {};
  c.sizes.accumulate = s.operation == Operation::merge || (s.traits.accumulates && random(0, 2) == 0);
  if (c.sizes.accumulate) {  // as Problem::validate says
    Modifiers& m = c.sizes.modifiers;
    m.bias_gradient = m.bias_gradient_of_rows = m.sinks = m.sinks_gradient = false;
  }
  if (!can_solve(s, c.sizes)) {
    c.sizes.sequences = nullptr;
    c.sizes.mask.lo = -Mask::kFar;
    if (!can_solve(s, c.sizes)) c.sizes.mask = {.group = c.sizes.mask.group};
  }
  c.sizes.lse_required = c.sizes.statistics() > 0;
  if (!can_solve(s, c.sizes)) return {};
  // Tilings are chosen for what the problem moves without its modifiers (docs/model.md); of sequences with patterns,
  // for some of them.
  if (claim == nullptr) {
    c.sizes.modifiers = {};
    if (has_pattern(c.sizes) && c.sizes.sequences->list.size() > 1) c.sizes.sequences = nullptr;
    if (!can_solve(s, c.sizes)) return {};
  }
  std::vector<Tiling> tilings;
  try {
    if (const auto tried = any_tiling(s, c.sizes, draw)) tilings.push_back(*tried);
    if (const auto chosen = s.choose(c.sizes, c.limits); chosen && claim != nullptr) tilings.push_back(*chosen);
  } catch (const std::exception& e) {
    return {true, fmt::format("{}: its tilings: {}", case_text(c.sizes), e.what())};
  }
  for (std::size_t a = 0; a < kSlowArrays && claim == nullptr; ++a) {
    c.limits.price.read[a] = std::array{1, 2, 4, 100}[static_cast<std::size_t>(draw(0, 3))];
    c.limits.price.write[a] = std::array{0, 1, 3, 500}[static_cast<std::size_t>(draw(0, 3))];
  }
  for (const Tiling& t : tilings) try {
      if (claim != nullptr)
        claim->check(s, c.sizes, t);
      else
        chooses_no_dearer_tiling(s, c.sizes, c.limits, t);
    } catch (const std::exception& e) {
      return {true, fmt::format("{} with{}: {}", case_text(c.sizes), text_of(t), e.what())};
    }
  return {!tilings.empty(), std::nullopt};
}

}  // namespace

std::span<const Claim> all() {
  const auto in_words = [](void (*check)(const Schedule&, const Sizes&, const Tiling&)) {
    return [check](const Schedule& s, Sizes x, const Tiling& t) {
      x.fast = {};
      check(s, x, t);
    };
  };
  static const std::vector<Claim> claims{
      {"IoIsTheFormula", in_words(io_is_the_formula)},
      {"FootprintIsExact", in_words(footprint_is_exact)},
      {"FootprintIsExactInBytes", footprint_is_exact_in_bytes},
      {"BytesAreThoseOfUnfinishedWords", bytes_are_those_of_unfinished_words},
      {"KeepsTheRules", in_words(keeps_the_rules)},
      {"EqualsDenseAttention", in_words(equals_dense_attention)},
      {"RunsAlikeOnEveryMachine", in_words(runs_alike_on_every_machine)},
      {"TracesReplayToTheSameBits", in_words(traces_replay_to_the_same_bits)},
      {"GivesTheSameBitsInAnyOrderOfEach", in_words(gives_the_same_bits_in_any_order_of_each)},
      {"MovesNoLessThanTheBounds", moves_no_less_than_the_bounds},
      {"CanSkipOrRepeatNothing", in_words(can_skip_or_repeat_nothing)},
  };
  return claims;
}

void chooses_no_dearer_tiling(const Schedule& s, const Sizes& x, schedule::Limits limits, const Tiling& other) {
  if (s.traits.printed) return;
  const auto occupied = [&](const Tiling& t) { return limits.occupied(s.footprint(x, t), s.prefetch(x, t)); };
  const Tiling smallest = s.smallest(x, limits.multiple);
  if (s.allows(x, smallest)) {
    const auto chosen = s.choose(x, limits);
    if (chosen && occupied(*chosen) > limits.M)
      fail("it chose{}, which does not fit {} words", text_of(*chosen), limits.M.str());
    if (!chosen && occupied(smallest) <= limits.M) fail("it found no tiling, but{} fits", text_of(smallest));
  }
  if (!s.traits.stable) return;      // printed or not, it is not tuned
  if (s.traits.lists_pairs) return;  // tiles grow as far as they can: some sizes of blocks are tried
  limits.multiple = {};
  // Groups are for many workers, not for few words: both have as many.
  const auto with_groups_of = [&](const Tiling& from, Tiling t) {
    for (schedule::TileSize& k : t)
      for (const schedule::TileSize& same : from)
        if (k.name == same.name && s.tile_size(k.name).groups) k.value = same.value;
    return t;
  };
  Tiling rival = with_groups_of(s.smallest(x, {}), other);
  limits.M = occupied(rival);
  const auto chosen = s.choose(x, limits);
  if (!chosen) fail("it found no tiling for {} words", limits.M.str());
  rival = with_groups_of(*chosen, rival);
  const Words cost = limits.price.of(s.io(x, *chosen)), less = limits.price.of(s.io(x, rival));
  if (occupied(*chosen) > limits.M) fail("it chose{}, which does not fit {} words", text_of(*chosen), limits.M.str());
  if (less < cost)
    fail("for {} words it chose{}, which costs {}, but{} costs {}", limits.M.str(), text_of(*chosen), cost.str(),
         text_of(rival), less.str());
}

namespace {

void check_cases(const Schedule& s, const Claim* claim, int cases, unsigned seed, index_t most_share) {
  const std::string name = claim != nullptr ? claim->name : "ChoosesNoDearerTiling";
  bool ran = false;
  for (int i = 0; i < cases || (!ran && i < 10 * cases); ++i) {  // some schedules solve few kinds of problems
    const unsigned one = seed * 1'000'003U + static_cast<unsigned>(i);
    const Outcome outcome = try_on(s, claim, one, most_share);
    ran = ran || outcome.ran;
    if (!outcome.broken) continue;
    for (index_t share = 5; share <= most_share; share += 5)  // the smallest problem of its kind that still fails
      if (const auto how = try_on(s, claim, one, share).broken)
        throw Broken(fmt::format("{}: {} does not hold (case {}): {}", s.name, name, one, *how));
  }
  if (!ran) throw Broken(fmt::format("{}: {} could be tried on none of {} cases: it solves none", s.name, name, cases));
}

}  // namespace

void check(const Schedule& s, std::size_t claim, int cases, unsigned seed) {
  check_cases(s, claim < all().size() ? &all()[claim] : nullptr, cases, seed, 100);
}
void check(const Schedule& s, const Claim& claim, int cases, unsigned seed, index_t share) {
  check_cases(s, &claim, cases, seed, share);
}

void check(const Schedule& s, int cases, unsigned seed) {
  for (std::size_t claim = 0; claim <= all().size(); ++claim) check(s, claim, cases, seed);
}

}  // namespace redblue::claims
