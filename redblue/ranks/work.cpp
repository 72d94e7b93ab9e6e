#include "redblue/ranks/work.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "redblue/language/error.hpp"
#include "redblue/ranks/bounds.hpp"
#include "redblue/ranks/pair_sums.hpp"
#include "redblue/ranks/parts.hpp"

namespace redblue::ranks {
namespace {

/// What some rank does to a part, which many parts have in common.
struct PartWork {
  Words io;
  std::string_view schedule;
  plan::Tiling tiling;
};

/// The steps of one rank, whose parts are planned, each kind of part once.
class WorkWalk {
 public:
  WorkWalk(const World& world, Words M) : world_(world) {
    if (world.layout().reproducible > 0)
      throw InvalidProblem(fmt::format(
          "M = {} with reproducible results: their tiles are the same for every fast memory; leave it out", M.str()));
    options_.M = M;
  }

  Words io(const Program& program) {
    const auto tile = [&](int t) -> const Tile& { return program.tiles[static_cast<std::size_t>(t)]; };
    Words sum;
    for (const Step& s : program.steps) {
      if (s.verb == Verb::attend || s.verb == Verb::gradient)
        for (const Part& part : world_.sight().parts(s.queries, s.keys))
          sum += part_io(part, tile(s.tiles[0]).heads, tile(s.tiles[1]).heads);
      if (s.verb == Verb::merge) sum += words_of(world_, program, {s.pieces[1], s.pieces[3]}) * 3;
      if (s.verb == Verb::sink)
        for (const int t : s.tiles) sum += words_of(world_.problem(), tile(t).array, tile(t).rows, tile(t).heads) * 3;
    }
    return sum;
  }
  /// The part with the most pairs.
  const PartWork* largest() const { return largest_; }

 private:
  using Kind = std::tuple<index_t, index_t, index_t, index_t, bool, bool, bool, index_t, index_t>;

  Words part_io(const Part& part, Range heads, Range kv_heads) {
    Problem p = problem_of_part(part, heads, kv_heads);
    if (p.bias_gradient) p.accumulate = false;  // its gradients are added to others afterwards
    const auto [found, is_new] =
        works_.try_emplace(Kind{p.n_q, p.n_k, heads.size(), kv_heads.size(), p.causal, p.window_left.has_value(),
                                p.window_right.has_value(), p.prefix, p.causal_offset.value_or(0)});
    PartWork& work = found->second;
    if (is_new) {
      const plan::Plan plan = plan::make_plan(p, options_);
      work = {plan.io().total(), plan.row().schedule, plan.row().tiling};
    }
    const Words pairs = world_.sight().pairs(Rows::of(part.queries), Rows::of(part.keys));
    if (largest_ == nullptr || pairs > most_pairs_) {
      most_pairs_ = pairs;
      largest_ = &work;
    }
    return work.io;
  }

  const World& world_;
  plan::Options options_;
  std::map<Kind, PartWork> works_;
  const PartWork* largest_ = nullptr;
  Words most_pairs_;
};

}  // namespace

Words local_io(const World& world, const Program& program, Words M) { return WorkWalk(world, M).io(program); }

LocalWork local_work(const World& world, Words M) {
  const std::vector<Words> pairs = pairs_of_places(world);
  const auto most = std::ranges::max_element(pairs);
  LocalWork work;
  work.rank = static_cast<int>(most - pairs.begin()) * world.layout().head_groups;
  work.pairs = *most * world.heads_of(Side::queries, 0).size() * world.problem().batch;
  WorkWalk walk(world, M);
  work.io = walk.io(program_of(world, work.rank));
  if (const PartWork* largest = walk.largest()) {
    work.schedule = largest->schedule;
    work.tiling = largest->tiling;
  }
  work.bound = best_over_ranks(bounds_of_work(world.problem(), world.ranks(), M));
  if (work.bound.words > 0) work.ratio = work.io.to_double() / work.bound.words.to_double();
  return work;
}

}  // namespace redblue::ranks
