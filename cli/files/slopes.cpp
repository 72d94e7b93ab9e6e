#include "files/slopes.hpp"

#include <bit>
#include <cmath>
#include <cstdint>

namespace redblue::cli {

std::vector<double> alibi_slopes(index_t heads) {
  const auto powers = [](index_t n, index_t step, index_t count) {
    std::vector<double> list;
    list.reserve(static_cast<std::size_t>(count));
    for (index_t h = 0; h < count; ++h)
      list.push_back(std::exp2(-8.0 * static_cast<double>(1 + h * step) / static_cast<double>(n)));
    return list;
  };
  const auto below = static_cast<index_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  std::vector<double> slopes = powers(below, 1, below);
  const std::vector<double> rest = powers(2 * below, 2, heads - below);
  slopes.insert(slopes.end(), rest.begin(), rest.end());
  return slopes;
}

}  // namespace redblue::cli
