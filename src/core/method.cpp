#include "redblue/core/method.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "redblue/core/error.hpp"

namespace redblue {

namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

void require_between(std::string_view what, index_t value, index_t least, index_t most) {
  if (value < least || value > most)
    throw InvalidProblem(fmt::format("method: {} = {}: give a number from {} to {}", what, value, least, most));
}
void require_seed(index_t seed) {
  constexpr index_t kLargestSeed = index_t{1} << 53;
  require_between("seed", seed, 0, kLargestSeed);
}

}  // namespace

std::string text_of(const Method& m) {
  const std::string_view name = name_of(kind_of(m));
  return std::visit(
      Overloaded{[&](const std::monostate&) { return std::string(name); },
                 [&](const LinearAttention&) { return std::string(name); },
                 [&](const Performer& p) { return fmt::format("{}, {} features, seed {}", name, p.features, p.seed); },
                 [&](const Linformer& l) {
                   return l.random_signs ? fmt::format("{}, {} random signs, seed {}", name, l.rank, l.seed)
                                         : fmt::format("{}, {} segment means", name, l.rank);
                 },
                 [&](const Nystroemformer& n) {
                   return fmt::format("{}, {} landmarks, {} iterations", name, n.landmarks, n.iterations);
                 }},
      m);
}

void require_sound(const Method& m, index_t n_q, index_t n_k) {
  constexpr index_t kMostFeatures = index_t{1} << 24, kMostIterations = 1000;
  std::visit(Overloaded{[](const std::monostate&) {}, [](const LinearAttention&) {},
                        [](const Performer& p) {
                          require_between("features", p.features, 1, kMostFeatures);
                          require_seed(p.seed);
                        },
                        [&](const Linformer& l) {
                          require_between("rank", l.rank, 1, n_k);
                          require_seed(l.seed);
                        },
                        [&](const Nystroemformer& n) {
                          require_between("landmarks", n.landmarks, 1, std::min(n_q, n_k));
                          require_between("iterations", n.iterations, 1, kMostIterations);
                        }},
             m);
}

}  // namespace redblue
