#include "redblue/ranks/steps.hpp"

namespace redblue::ranks {

index_t cols_of(const Problem& problem, SlowArray array) {
  switch (array) {
    case SlowArray::Q:
    case SlowArray::K:
    case SlowArray::dQ:
    case SlowArray::dK:
      return problem.d;
    case SlowArray::lse:
    case SlowArray::D:
      return 1;
    default:
      return problem.d_v;
  }
}

Words words_of(const Problem& problem, SlowArray array, const Rows& rows, Range heads) {
  return Words(problem.batch) * heads.size() * rows.count() * cols_of(problem, array);
}

Words words_of(const World& world, const Program& program, const std::vector<Piece>& pieces) {
  Words sum;
  for (const Piece& p : pieces)
    sum += words_of(world.problem(), program.tiles[static_cast<std::size_t>(p.tile)].array, p.rows, p.heads);
  return sum;
}

}  // namespace redblue::ranks
