#include "redblue/methods/maths/method.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "redblue/language/error.hpp"
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/maths/coreset_blocks.hpp"
#include "redblue/problem/problem.hpp"

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
                 },
                 [&](const Smyrf& s) {
                   return fmt::format("{}, {} rounds, clusters of {}, seed {}", name, s.rounds, s.cluster, s.seed);
                 },
                 [&](const HyperAttention& h) {
                   return fmt::format("{}, blocks of {}, {} samples, {} planes, seed {}", name, h.block, h.samples,
                                      h.planes, h.seed);
                 },
                 [&](const Reformer& r) {
                   return fmt::format("{}, {} rounds, chunks of {}, {} buckets, seed {}", name, r.rounds, r.chunk,
                                      r.buckets, r.seed);
                 },
                 [&](const Coreset& c) {
                   return fmt::format("{}{}, {} keys for each block of {}, tau {}, seed {}",
                                      c.carried ? "carried " : "", name, c.rank, c.block, c.balanced ? "balanced" : "1",
                                      c.seed);
                 },
                 [&](const UniformSample& s) { return fmt::format("{}, {} keys, seed {}", name, s.keys, s.seed); }},
      m);
}

Method fitted(Method m, index_t n_k) {
  constexpr index_t kUsual = 64;
  const auto fit = [&](index_t& keys) {
    if (keys == kAsFits) keys = n_k > 0 ? std::min(kUsual, n_k) : kUsual;
  };
  if (auto* smyrf = std::get_if<Smyrf>(&m)) fit(smyrf->cluster);
  if (auto* reformer = std::get_if<Reformer>(&m)) fit(reformer->chunk);
  if (auto* hyper = std::get_if<HyperAttention>(&m)) {
    fit(hyper->block);
    fit(hyper->samples);
  }
  return m;
}

void require_sound(const Method& m, index_t n_q, index_t n_k) {
  constexpr index_t kMostFeatures = index_t{1} << 24, kMostIterations = 1000, kMostRounds = 1000, kMostPlanes = 20,
                    kMostBuckets = index_t{1} << 16;
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
                        },
                        [&](const Smyrf& s) {
                          require_between("rounds", s.rounds, 1, kMostRounds);
                          require_between("cluster", s.cluster, 1, n_k);
                          require_seed(s.seed);
                        },
                        [&](const HyperAttention& h) {
                          require_between("block", h.block, 1, n_k);
                          require_between("samples", h.samples, 0, n_k);
                          require_between("planes", h.planes, 1, kMostPlanes);
                          require_seed(h.seed);
                        },
                        [&](const Reformer& r) {
                          require_between("rounds", r.rounds, 1, kMostRounds);
                          require_between("chunk", r.chunk, 1, n_k);
                          require_between("buckets", r.buckets, 2, kMostBuckets);
                          if (r.buckets % 2 != 0)
                            throw InvalidProblem(fmt::format(
                                "method: buckets = {}: give an even number, half of them for either sign", r.buckets));
                          require_seed(r.seed);
                        },
                        [&](const Coreset& c) {
                          require_between("block", c.block, 1, n_k);
                          require_between("rank", c.rank, 1, c.carried ? n_k : c.block);
                          require_seed(c.seed);
                        },
                        [&](const UniformSample& s) {
                          require_between("keys", s.keys, 1, n_k);
                          require_seed(s.seed);
                        }},
             m);
}

AnyApproximation PublishedMethod::fitted(index_t n_k) const {
  const Method m = redblue::fitted(method, n_k);
  return m == method ? nullptr : approximate_by(m);
}

void PublishedMethod::require_sound(const Problem& p) const {
  const auto require = [&](bool right, const std::string& text) {
    if (!right) throw InvalidProblem(fmt::format("method: {}: {}", name_of(kind()), text));
  };
  require(p.op == Operation::forward, fmt::format("operation {} has none: it is for forward", name_of(p.op)));
  require(p.score == Score::softmax, fmt::format("it is for the softmax, not for score {}", name_of(p.score)));
  require(!p.modifiers().any(), "it knows no bias, softcap, ALiBi, sinks or dropout");
  redblue::require_sound(redblue::fitted(method, p.n_k), p.n_q, p.n_k);
  require(!p.scale || kind() != methods::kLinearAttention,
          fmt::format("scale = {}: its feature map takes q and k as they are, so that a scale would change nothing; "
                      "leave it out, or multiply q by a number of your own",
                      p.scale.value_or(0)));
  require(p.scale_or_default() > 0 || kind() != methods::kPerformer,
          fmt::format("scale = {}: its features are of q and k times sqrt(scale); give a positive one",
                      p.scale_or_default()));
}

MethodWorkspace PublishedMethod::workspace(const Sizes& x) const {
  return std::visit(
      Overloaded{[](const Smyrf& m) { return MethodWorkspace{m.rounds + 1, m.rounds}; },
                 [](const HyperAttention&) { return MethodWorkspace{1, 1}; },
                 [](const Reformer& m) { return MethodWorkspace{m.rounds, m.rounds}; },
                 [](const Linformer& m) { return MethodWorkspace{.few_rows = m.rank}; },
                 [&](const Coreset&) { return MethodWorkspace{.few_rows = schedule::CoresetBlocks(x).points()}; },
                 [](const auto&) { return MethodWorkspace(); }},
      method);
}

}  // namespace redblue
