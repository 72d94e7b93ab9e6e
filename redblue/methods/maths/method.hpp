#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>

#include "redblue/language/types.hpp"
#include "redblue/methods/maths/kinds.hpp"

/// The published methods that may stand in place of exact attention. They are counted like exact attention; of their
/// errors nothing is proved.
namespace redblue {

/// Stands for a number that the caller leaves out; fitted() replaces it with 64, or with n_k where that is smaller.
inline constexpr index_t kAsFits = std::numeric_limits<index_t>::min();

/// Weights phi(q).phi(k) with phi(x) = elu(x) + 1, x by x; no scale. Katharopoulos et al. 2020 (arXiv 2006.16236).
struct LinearAttention {
  friend bool operator==(const LinearAttention&, const LinearAttention&) = default;
};

/// Weights phi(q).phi(k) with positive random features phi_a(x) = exp(omega_a.x - |x|^2/2) of q and k times
/// sqrt(scale), the omega_a orthogonal in blocks of d (methods/maths/random_features.hpp). Choromanski et al. 2020
/// (arXiv 2009.14794).
struct Performer {
  index_t features = 256;
  index_t seed = 0;  ///< from 0 to 2^53
  friend bool operator==(const Performer&, const Performer&) = default;
};

/// Exact attention on `rank` rows E K and E V. E (rank x n_k) is not learned: it takes the mean of each of `rank`
/// segments of the keys, or has entries +- 1/sqrt(rank) at random. Wang et al. 2020 (arXiv 2006.04768).
struct Linformer {
  index_t rank = 64;
  bool random_signs = false;
  index_t seed = 0;  ///< of the signs, from 0 to 2^53
  friend bool operator==(const Linformer&, const Linformer&) = default;
};

/// softmax(Q K~^T) A^+ softmax(Q~ K^T) V, scores scaled: Q~ and K~ are means of segments, A = softmax(Q~ K~^T), and the
/// pseudo-inverse comes from an iteration of the third order, with this number of steps. Xiong et al. 2021 (arXiv
/// 2102.03902).
struct Nystroemformer {
  index_t landmarks = 64;
  index_t iterations = 6;
  friend bool operator==(const Nystroemformer&, const Nystroemformer&) = default;
};

/// Exact attention within clusters, `rounds` times with other clusters, rounds together in one softmax: a pair that
/// meets twice counts twice. Rows are sorted by a random projection after a transformation that makes the nearest keys
/// those of the largest scores, and cut into clusters: of at most `cluster` keys, and as many of queries. Daras et al.
/// 2020 (arXiv 2010.05315).
struct Smyrf {
  index_t rounds = 4;
  index_t cluster = kAsFits;
  index_t seed = 0;  ///< from 0 to 2^53
  friend bool operator==(const Smyrf&, const Smyrf&) = default;
};

/// Exact attention within blocks of sorted rows, and `samples` keys drawn for all queries in place of the others: those
/// outside of the query's block count n_k/samples times. Rows are sorted by the sides of random planes that they are
/// on; a block has at most `block` keys, and as many queries. Han et al. 2023 (arXiv 2310.05869), without its search
/// for large entries and without its causal form.
struct HyperAttention {
  index_t block = kAsFits;
  index_t samples = kAsFits;
  index_t planes = 7;
  index_t seed = 0;  ///< from 0 to 2^53
  friend bool operator==(const HyperAttention&, const HyperAttention&) = default;
};

/// Attention whose keys are its queries, taken as long as a unit: K is not read. In each of `rounds` rounds rows are
/// sorted by a hash into `buckets`, cut into chunks of `chunk` rows, and attend to their own chunk and the one before
/// it; rounds come together as in Smyrf. A row attends to itself only where there is nothing else. Kitaev et al. 2020
/// (arXiv 2001.04451).
struct Reformer {
  index_t rounds = 4;
  index_t chunk = kAsFits;
  index_t buckets = 16;                ///< an even number
  index_t seed = 0;                    ///< from 0 to 2^53
  static constexpr double own = -1e5;  ///< the score of a row with itself
  friend bool operator==(const Reformer&, const Reformer&) = default;
};

/// `rank` weighted keys in place of each `block` of keys, chosen by randomly pivoted Cholesky of exp(kappa x.x'), x
/// being keys less the mean of their block: a pivot is drawn with a probability that its residual is proportional to.
/// The weights of a chosen key and its row of values are what interpolation in that kernel gives; rows of o are held
/// within the least and the largest entry of each column of V. kappa = |scale| (tau 1), or |scale| max |q| / max |k|
/// over all queries and the keys so far (balanced). Carried: one coreset of `rank` keys, reduced anew together with
/// each block. After WildCat (arXiv 2602.10056), Cholesky by Chen et al. 2022 (arXiv 2207.06503); the schedule is this
/// project's.
struct Coreset {
  index_t block = 128;
  index_t rank = 32;
  bool balanced = false;
  bool carried = false;
  index_t seed = 0;  ///< from 0 to 2^53
  /// A key whose residual in the normalised kernel is no more than this is known by those that are chosen.
  static constexpr double kKnown = 0x1p-10;
  friend bool operator==(const Coreset&, const Coreset&) = default;
};

/// Exact attention on `keys` keys drawn at random, each at most once, the same for all queries. No score has a say in
/// which: a yardstick for methods that choose.
struct UniformSample {
  index_t keys = 64;
  index_t seed = 0;  ///< from 0 to 2^53
  friend bool operator==(const UniformSample&, const UniformSample&) = default;
};

/// A method that stands in place of exact attention, in the order of kind_of(); the first is none of them.
using Method = std::variant<std::monostate, LinearAttention, Performer, Linformer, Nystroemformer, Smyrf,
                            HyperAttention, Reformer, Coreset, UniformSample>;

constexpr const MethodKind& kind_of(const Method& m) {
  using namespace methods;
  constexpr std::array kKinds{&MethodKind::exact, &kLinearAttention, &kPerformer,      &kLinformer,
                              &kNystroemformer,   &kSmyrf,           &kHyperAttention, &kReformer,
                              &kCoreset,          &kUniformSample};
  return *kKinds[m.index()];
}
/// "Performer, 256 features, seed 7"
std::string text_of(const Method& m);

/// The method with a number in place of each kAsFits.
Method fitted(Method m, index_t n_k);

/// Throws InvalidProblem where a number makes no sense, and says which would.
void require_sound(const Method& m, index_t n_q, index_t n_k);

}  // namespace redblue
