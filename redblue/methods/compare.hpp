#pragma once
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "redblue/methods/certificate.hpp"
#include "redblue/runtime/run.hpp"

/// Methods of approximate attention beside exact attention on the same tensors: error, words, time.
namespace redblue {

/// How far a head is from exact attention; of several seeds, on average.
struct HeadError {
  index_t batch = 0, head = 0;
  double frobenius = 0;                         ///< |o - exact o| over |exact o|, Frobenius norms
  double largest = 0;                           ///< max |o - exact o| over max |exact o|
  double most_frobenius = 0, most_largest = 0;  ///< the largest of all seeds
  /// What the certificate proves of `largest`, roundings included. Infinite where nothing is proved.
  double proved = std::numeric_limits<double>::infinity();
};

/// A method with one setting.
struct Contender {
  std::string method;   ///< "exact", "polynomial", "longformer", ...
  std::string setting;  ///< the options that ask redblue run for it: "--approximate 2:0.8"
  Problem problem{};
  std::string refused{};  ///< why it is not run; empty: it is
  /// The problem with the seed `later` after its own. Null: it draws no random numbers.
  std::function<Problem(index_t later)> reseeded{};
  /// Is it run only where it multiplies no more than kMostWork times what exact attention does, or no more than
  /// kLittleWork?
  bool if_cheap = false;
};

constexpr index_t kMostWork = 5;                   ///< times what exact attention multiplies
constexpr index_t kLittleWork = index_t{1} << 33;  ///< multiply-adds: some ten seconds of one core, for the slowest

/// What became of a contender. Words are totals over batch and heads, without lse; they, the footprint and the time are
/// those of its first seed. (Only random patterns move other words with another seed.)
struct Compared {
  Contender contender;
  std::string schedule{};
  Words footprint, words;
  double seconds = 0;                        ///< median of the repetitions
  index_t seeds = 1;                         ///< that the errors are of
  std::vector<HeadError> heads{};            ///< in the order of batches and heads; empty where it is refused
  std::optional<Certificate> certificate{};  ///< of polynomials that ran in f32 or f64
};

struct CompareOptions {
  Words M;                  ///< words of fast memory, of every method
  index_t repetitions = 3;  ///< timed runs of each, 1 to 1000
  index_t seeds = 1;        ///< of each that draws random numbers, 1 to 1000: its own and those after it
  RunOptions run{};
};

struct Comparisons {
  std::vector<Compared> methods;  ///< exact attention first
  /// Rows that are all the mean of the values that they see: what a method without scores would do. It has no schedule.
  std::vector<HeadError> mean_of_values;
};

/// Exact attention, and what there is of approximations of it: polynomials of degree 1 to 4 on the range that the norms
/// of q and k prove, of other coefficients, and of each row, by radius and by spread; a uniform sample of keys; linear
/// attention, Performer, Linformer, Nystroemformer, SMYRF, HyperAttention, Reformer (whose keys are its queries: its
/// error is small only where k is q/|q|), coresets; sparse patterns. problem: forward, softmax, without pattern,
/// approximation and modifiers; few methods know sequences. Clusters, samples and ranks are at most n_k, landmarks at
/// most n_q, too. All are Contender::if_cheap. Throws Unsupported for others, and what norms_of throws.
std::vector<Contender> contenders(const Problem& problem, const Inputs& inputs, DType compute = DType::f32);

/// Exact attention, and each of these methods, as Problem::approximate reads them. Throws Unsupported as above, and
/// InvalidProblem where a text is no method or does not go with the problem.
std::vector<Contender> contenders(const Problem& problem, const std::vector<std::string>& methods);

/// Runs each, and compares its o, in the type of q, with exact attention in fp64. A method that M words do not suffice
/// for is refused, with the least M, and so is one that Contender::if_cheap leaves out. Throws what make_plan and run
/// throw for exact attention. `done` is told the number of methods done.
Comparisons compare(const std::vector<Contender>& contenders, const Inputs& inputs, const CompareOptions& options,
                    const std::function<void(std::size_t)>& done = {});

}  // namespace redblue
