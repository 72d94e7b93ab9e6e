#include "redblue/ranks/steps.hpp"

namespace redblue::ranks {

std::vector<Lifetime> lifetimes_of(const Program& program) {
  std::vector<Lifetime> lives(program.tiles.size());
  for (std::size_t k = 0; k < program.steps.size(); ++k) {
    const auto names = [&](int tile) {
      if (tile < 0) return;
      Lifetime& life = lives[static_cast<std::size_t>(tile)];
      if (life.first == Lifetime::kNever) life.first = k;
      life.last = k;
    };
    for (const int t : program.steps[k].tiles) names(t);
    for (const Piece& p : program.steps[k].pieces) names(p.tile);
  }
  for (std::size_t t = 0; t < lives.size(); ++t)
    if (program.tiles[t].kept) lives[t].last = program.steps.size() - 1;
  return lives;
}

index_t batches_of(const Problem& problem, SlowArray array) {
  if (array == SlowArray::bias || array == SlowArray::dBias) return (*problem.bias)[0];
  return array == SlowArray::dSinks ? 1 : problem.batch;
}

index_t cols_of(const Problem& problem, SlowArray array) {
  switch (array) {
    case SlowArray::Q:
    case SlowArray::K:
    case SlowArray::dQ:
    case SlowArray::dK:
      return problem.d;
    case SlowArray::lse:
    case SlowArray::D:
    case SlowArray::dSinks:
      return 1;
    case SlowArray::bias:
    case SlowArray::dBias:
      return (*problem.bias)[3];
    default:
      return problem.d_v;
  }
}

Words words_of(const Problem& problem, SlowArray array, const Rows& rows, Range heads, const Rows& cols) {
  return Words(batches_of(problem, array)) * heads.size() * rows.count() *
         (cols.empty() ? cols_of(problem, array) : cols.count());
}

Words words_of(const World& world, const Program& program, const std::vector<Piece>& pieces) {
  Words sum;
  for (const Piece& p : pieces)
    sum += words_of(world.problem(), program.tiles[static_cast<std::size_t>(p.tile)].array, p.rows, p.heads, p.cols);
  return sum;
}

}  // namespace redblue::ranks
