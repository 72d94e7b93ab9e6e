#include "redblue/verify/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "redblue/runtime/storage_of.hpp"
#include "redblue/threads/subnormals.hpp"
#include "redblue/verify/differences.hpp"
#include "redblue/verify/most.hpp"
#include "redblue/verify/oracle/dense.hpp"
#include "redblue/verify/oracle/moving.hpp"
#include "redblue/verify/oracle/moving_magnitudes.hpp"
#include "redblue/verify/projected_terms.hpp"

namespace redblue {

namespace {

using namespace comparison;
using oracle::Dense;

/// The given O and lse against those of the oracle, row by row: a row of lse may be off by the roundings of numbers of
/// its own size and of its scores, a row of O by what that does to weights. Errors are kept in units of what is
/// allowed.
class GivenCheck {
 public:
  /// `values`: the largest entry of V, or the largest sum of the magnitudes of an entry of O. score_error: the largest
  /// of a score.
  template <class Wide>
  void add(const Matrices<Wide>& forward, const Matrix<double>& O, const Matrix<double>& lse, double values,
           double score_error, double O_eps, double lse_eps) {
    const Matrix<Wide>& own_O = forward.at(SlowArray::O);
    const Matrix<Wide>& own_lse = forward.at(SlowArray::lse);
    const double size = std::max(values, largest_of(own_O.words));
    for (index_t i = 0; i < O.shape.rows; ++i) {
      const double wanted = static_cast<double>(own_lse(i, 0)), row = std::isfinite(wanted) ? std::abs(wanted) : 0;
      take(lse_, lse(i, 0), wanted, kRoundings * lse_eps * (1 + row) + 2 * score_error);
      for (index_t t = 0; t < O.shape.cols; ++t)
        take(O_, O(i, t), static_cast<double>(own_O(i, t)), (kRoundings * O_eps * (1 + row) + 2 * score_error) * size);
    }
  }
  std::vector<GivenInput> finish() const {
    return {{tensor_name(SlowArray::O), O_}, {tensor_name(SlowArray::lse), lse_}};
  }

 private:
  static constexpr double kRoundings = 16;
  static void take(double& worst, double given, double own, double allowed) {
    if (given == own || (std::isnan(given) && std::isnan(own))) return;
    const double gap = std::abs(given - own);
    worst = std::max(worst, std::isfinite(gap) ? gap / allowed : std::numeric_limits<double>::infinity());
  }
  double O_ = 0, lse_ = 0;
};

/// Gradients of a bias and of sinks: sums over the instances that share them, by the first of these, and over the
/// entries that are one word, each of which has the sum.
template <class T>
struct SharedGradients {
  std::map<std::pair<SlowArray, index_t>, Matrix<T>> sums;
  void add(const Problem& p, SlowArray a, index_t instance, const Matrix<T>& gradient) {
    const Modifiers m = p.modifiers();
    index_t batch = instance / m.kv_heads, head = instance % m.kv_heads;
    if (is_sinks_gradient(a) || m.bias_over_batches) batch = 0;
    if (is_bias_gradient(a) && m.bias_over_heads) head = 0;
    Matrix<T>& sum = sums.try_emplace({a, batch * m.kv_heads + head}, gradient.shape).first->second;
    if (!is_bias_gradient(a)) {
      for (std::size_t i = 0; i < sum.words.size(); ++i) sum.words[i] += gradient.words[i];
      return;
    }
    const SharedWords words(p);
    words.for_entries(sum.shape, [&](std::size_t e, std::size_t first) { sum.words[first] += gradient.words[e]; });
    words.for_entries(sum.shape, [&](std::size_t e, std::size_t first) { sum.words[e] = sum.words[first]; });
  }
};

/// The largest terms over all instances: what oracle::Dense says of the terms of O, or of gradients, and what follows
/// from it.
template <class Wide>
std::map<SlowArray, double> largest_terms(const Problem& p, const Tensors& tensors) {
  std::map<SlowArray, double> largest;
  for (index_t h = 0; h < p.instances(); ++h) {
    Matrices<Wide> wide;
    for (const SlowArray a : inputs_of(p)) wide[a] = converted<Wide>(gathered(p, tensors, a, h));
    if (has_directions(p.op)) {
      for (const auto& [a, m] : oracle::moved_magnitudes(p, wide, h))
        largest[a] = std::max(largest[a], largest_of(m.words));
      continue;
    }
    const Dense<Wide> truth(p, wide, oracle::kBlock, h);
    const auto terms = is_forward(p.op) ? std::map<SlowArray, Wide>{{SlowArray::O, truth.largest_output_terms()}}
                                        : truth.largest_gradient_terms();
    for (const auto& [a, most] : terms) largest[a] = std::max(largest[a], static_cast<double>(most));
  }
  return follows_forward(p.op) && is_projected(p.op) ? projected_terms(largest, p, tensors) : largest;
}

/// The largest rounding error of a score in T: a weight is off by as much. Some rows stand for all.
template <class Wide, class T>
double error_of_scores(const Dense<Wide>& truth, const Dense<T>& naive) {
  constexpr index_t kRows = 64;
  const index_t rows = truth.rows();
  double error = 0;
  for (index_t i = 0; i < rows; i += ceil_div(rows, kRows)) {
    const std::vector<Wide> wanted = truth.scores(i);
    const std::vector<T> ours = naive.scores(i);
    for (std::size_t j = 0; j < ours.size(); ++j)
      if (const double gap = std::abs(static_cast<double>(wanted[j] - static_cast<Wide>(ours[j]))); std::isfinite(gap))
        error = std::max(error, gap);
  }
  return error;
}

/// What a sum over monomials is relative to: their terms may cancel where those of plain attention do not.
struct Monomials {
  double largest_v = 0, factor = 0;       ///< oracle::Dense::monomial_magnitude
  std::map<SlowArray, double> gradients;  ///< the largest entry of the gradients of magnitudes

  template <class Wide>
  void add(const Problem& p, const Dense<Wide>& ours, const Matrices<Wide>& in) {
    largest_v = std::max(largest_v, largest_of(in.at(SlowArray::V).words));
    if (p.approximation == nullptr || p.approximation->terms(p.d) == 0) return;
    factor = std::max(factor, static_cast<double>(ours.monomial_magnitude()));
    if (is_forward(p.op)) return;
    for (const auto& [a, m] : ours.gradient_magnitudes()) gradients[a] = std::max(gradients[a], largest_of(m.words));
  }
  /// What roundings of the sums over monomials may add to the relative error of an output, each of them one of `eps`.
  double rounding(const Problem& p, SlowArray a, double largest, double eps) const {
    const double summed = p.approximation == nullptr ? 0 : p.approximation->terms(p.d);
    if (summed == 0 || !(largest > 0)) return 0;
    const double steps = 4 + std::sqrt(summed);
    const double terms = a == SlowArray::O ? largest_v : gradients.contains(a) ? gradients.at(a) : 0;
    return steps * eps * factor * terms / largest;
  }
};

/// Adds one instance of a problem with an approximation: o is not yet relative to the largest |v|.
template <class Wide>
void add_nearness(Nearness& n, const Problem& p, const Tensors& tensors, const Dense<Wide>& ours,
                  const Matrices<Wide>& in, index_t instance) {
  for (index_t i = 0; i < ours.rows(); ++i)
    for (const Wide& s : ours.scores(i)) n.largest_score = std::max(n.largest_score, std::abs(static_cast<double>(s)));
  if (!is_forward(p.op)) return;
  Problem exact = p;
  exact.approximation = nullptr;
  const Matrix<Wide> wanted = Dense<Wide>(exact, in, oracle::kBlock, instance).forward().at(SlowArray::O);
  const Matrix<double> o = gathered(p, tensors, SlowArray::O, instance);
  const index_t group = p.group();  // rows of one position: the query heads of a group
  n.distances.resize(static_cast<std::size_t>(p.batch * p.heads));
  long double gaps = 0, squares = 0;  // of doubles
  for (index_t i = 0; i < o.shape.rows; ++i)
    for (index_t t = 0; t < o.shape.cols; ++t) {
      const double exact_word = static_cast<double>(wanted(i, t)), gap = std::abs(o(i, t) - exact_word);
      if (!std::isfinite(exact_word)) continue;  // of inputs that are none: compared as outputs are
      double& of_head = n.distances[static_cast<std::size_t>(instance * group + i % group)];
      of_head = most(of_head, gap);
      n.distance = most(n.distance, gap);
      gaps += static_cast<long double>(gap) * gap;
      squares += static_cast<long double>(exact_word) * exact_word;
    }
  if (squares > 0) n.relative = most(n.relative, static_cast<double>(std::sqrt(gaps / squares)));
}

/// Where the radius of a row is so near an edge of the grid of polynomials, or a draw of a coreset so near the next
/// key, that roundings put it on this side or that, either is right: O has the one that ours is nearer to.
template <class Wide>
void take_nearer_sides(Dense<Wide> truth, const Matrix<double>& ours, double eps, Matrix<Wide>& O) {
  for (const double nudge : {1 - 64 * eps, 1 + 64 * eps}) {
    truth.nudge(static_cast<Wide>(nudge));
    const Matrix<Wide> other = truth.forward().at(SlowArray::O);
    for (index_t i = 0; i < O.shape.rows; ++i) {
      double gap = 0, other_gap = 0;
      for (index_t t = 0; t < O.shape.cols; ++t) {
        gap = std::max(gap, std::abs(static_cast<double>(O(i, t)) - ours(i, t)));
        other_gap = std::max(other_gap, std::abs(static_cast<double>(other(i, t)) - ours(i, t)));
      }
      for (index_t t = 0; other_gap < gap && t < O.shape.cols; ++t) O(i, t) = other(i, t);
    }
  }
}

/// The iteration of Nystroemformer, the triangular system of a coreset, and polynomials beyond their range, make
/// roundings large: errors of two runs are then further apart.
bool amplifies_roundings(const Problem& p) {
  return p.approximation != nullptr && p.approximation->amplifies_roundings();
}

/// T is the compute type, Wide that of the oracle: one must be wider than the other, or plain attention in T would err
/// by nothing and nothing would be allowed.
template <class T, class Wide>
Verification verify_in(const Problem& p, const Tensors& tensors, DType compute, index_t block, index_t lse_roundings) {
  const auto inputs = inputs_of(p);
  auto outputs = outputs_of(p);
  std::erase_if(outputs, [&](SlowArray a) { return tensors[a].data == nullptr; });
  const bool backward = follows_forward(p.op), given = backward && p.forward_given && p.has_statistics();
  std::map<SlowArray, Comparison> comparisons;
  for (const SlowArray a : outputs) comparisons[a].step = precision_of(tensors[a].dtype).least_step;
  GivenCheck given_check;
  std::map<SlowArray, index_t> nan_inputs;
  struct Slope {
    SlowArray gradient;
    double gap;  ///< relative error that the given O and lse bring in
    Difference difference;
  };
  std::vector<Slope> differences;
  SharedGradients<Wide> wanted_shared;
  SharedGradients<T> plain_shared;
  double largest_lse = 0, score_error = 0, sink_magnitude = 0;
  Nearness nearness;
  Monomials monomials;
  std::mt19937_64 random(20241);
  for (index_t h = 0; h < p.instances(); ++h) {
    Matrices<Wide> wide;
    Matrices<T> narrow;
    for (const SlowArray a : inputs) {
      const Matrix<double> m = gathered(p, tensors, a, h);
      nan_inputs[a] += count_nan(m.words);
      wide[a] = converted<Wide>(m);
      narrow[a] = converted<T>(m);
    }
    const Dense<Wide> truth(p, wide, oracle::kBlock, h);
    if (p.approximation != nullptr) {
      add_nearness(nearness, p, tensors, truth, wide, h);
      monomials.add(p, truth, wide);
    }
    const Dense<T> naive(p, narrow, block, h);
    Matrices<Wide> forward = truth.forward();
    if (p.approximation != nullptr && p.approximation->has_edges())
      take_nearer_sides(truth, gathered(p, tensors, SlowArray::O, h), eps_of(compute), forward.at(SlowArray::O));
    for (const Wide& x : (is_of_pairs(p.op) ? wide : forward)[SlowArray::lse].words)
      if (std::isfinite(x)) largest_lse = std::max(largest_lse, std::abs(static_cast<double>(x)));
    score_error = std::max(score_error, error_of_scores(truth, naive));
    const bool moves = has_directions(p.op);
    const Matrices<Wide> wanted = moves      ? oracle::moved(p, wide, oracle::kBlock, h)
                                  : backward ? truth.gradients()
                                             : forward;
    const Matrices<T> plain = moves      ? oracle::moved(p, narrow, block, h)
                              : backward ? naive.gradients()
                                         : naive.forward();
    if (p.sinks_gradient) sink_magnitude += static_cast<double>(truth.sinks_gradient_magnitude());
    if (p.sinks_direction && p.op == Operation::second) {
      const Matrices<Wide> magnitudes = oracle::moved_magnitudes(p, wide, h);
      for (const Wide& x : magnitudes.at(SlowArray::LSinks).words) sink_magnitude += static_cast<double>(x);
    }
    for (const SlowArray a : outputs) {
      if (is_of_modifiers(a)) {
        wanted_shared.add(p, a, h, wanted.at(a));
        plain_shared.add(p, a, h, plain.at(a));
      } else {
        comparisons[a].add(wanted.at(a), gathered(p, tensors, a, h), plain.at(a));
      }
    }
    if (given)
      given_check.add(forward, gathered(p, tensors, SlowArray::O, h), gathered(p, tensors, SlowArray::lse, h),
                      p.op == Operation::backward ? largest_of(wide.at(SlowArray::V).words)
                                                  : static_cast<double>(truth.largest_output_terms()),
                      score_error, std::max(eps_of(tensors[SlowArray::O].dtype), eps_of(compute)),
                      std::max(eps_of(tensors[SlowArray::lse].dtype), eps_of(compute)));
    if (backward && h == 0) {  // the first head of the first batch stands for all
      // The differences know nothing of the rounding of the given O and lse: what it does to each gradient is allowed.
      wide.erase(SlowArray::O);
      wide.erase(SlowArray::lse);
      const Dense<Wide> own(p, wide, oracle::kBlock, h);
      const Matrices<Wide> exact = moves ? wanted : own.gradients();
      for (const SlowArray a : outputs) {
        if (p.sources != Sources::distinct && (a == SlowArray::dA1 || a == SlowArray::dA2 || a == SlowArray::dA3))
          continue;  // gradients with the others held fixed, which differences cannot do
        if (is_of_modifiers(a) && p.instances() > 1) continue;  // a sum over instances
        Comparison gap;
        gap.add(exact.at(a), converted<double>(wanted.at(a)), converted<double>(exact.at(a)));
        const Matrix<double> ours = gathered(p, tensors, a, h);
        differences.push_back({a, gap.finish(0).error,
                               p.op == Operation::tangent ? tangent_difference(p, own, a, ours, random)
                                                          : difference_of(p, own, a, ours, random)});
      }
    }
  }
  for (const auto& [key, m] : wanted_shared.sums)
    comparisons[key.first].add(m, gathered(p, tensors, key.first, key.second), plain_shared.sums.at(key));
  // A weight exp(s - lse) takes in the rounding of lse and of the difference: either costs it |lse| eps. Gradients are
  // made of such weights; outputs only where the plan keeps lse in one word, each time with another rounding.
  const double times = std::sqrt(static_cast<double>(backward ? std::max<index_t>(lse_roundings, 1) : lse_roundings));
  // Scores themselves are off by what plain attention's are.
  const double of_weights = times * 2 * largest_lse * eps_of(compute) + 2 * score_error;
  const double lse_rounding = p.op == Operation::scores ? 0 : of_weights;
  Verification v;
  for (const SlowArray a : outputs) {
    const double largest = comparisons[a].largest;
    const double rounding = 4 * std::max(eps_of(compute), eps_of(tensors[a].dtype));
    // A gradient of sinks has few entries, each a long sum that may cancel: the error of one naive sum says little of
    // another.
    const double sums = is_sinks_gradient(a) && largest > 0 ? 4 * eps_of(compute) * sink_magnitude / largest : 0;
    const double of_monomials = monomials.rounding(p, a, largest, eps_of(compute));
    // Scores that are off by something move lse by no more, which shows where a mask or ALiBi leaves lse small.
    const double of_lse = times * eps_of(compute) + (largest > 0 ? 2 * score_error / largest : 0);
    v.outputs.push_back(
        comparisons[a].finish(rounding + sums + of_monomials + (a == SlowArray::lse ? of_lse : lse_rounding),
                              amplifies_roundings(p) ? 4 : 2));
    v.outputs.back().name = tensor_name(a);
    v.nan_outputs += comparisons[a].nan_outputs;
  }
  // Roundings of terms that cancel, allowed below, are no reason for o to be further from exact attention.
  for (const Deviation& d : v.outputs) nearness.rounding = std::max(nearness.rounding, d.tolerance);
  // Where terms cancel, as of gradients where a query sees one key only, or of O where weights are all alike, entries
  // are small beside them, and so are they beside the roundings of their terms. Where nothing else is left, errors are
  // relative to the terms.
  std::map<SlowArray, double> terms, relative_to;
  const auto is_small = [&](std::size_t i) {
    const Deviation& d = v.outputs[i];
    const bool has_terms = outputs[i] == SlowArray::O || (follows_forward(p.op) && !is_sinks_gradient(outputs[i]));
    return has_terms && std::isfinite(d.error) && (!d.ok() || comparisons[outputs[i]].largest == 0);
  };
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!is_small(i)) continue;
    if (terms.empty()) terms = largest_terms<Wide>(p, tensors);
    Deviation& d = v.outputs[i];
    constexpr double kNothingLeft = 0.01;
    const double largest = comparisons[outputs[i]].largest, all = terms.at(outputs[i]);
    const double rounding = 4 * eps_of(compute);
    if (rounding * all <= kNothingLeft * largest) {
      if (largest > 0) d.tolerance += rounding * all / largest;
    } else {
      relative_to[outputs[i]] = all;
      const double shrink = (largest > 0 ? largest : 1) / all;
      d.error *= shrink;
      d.naive_error *= shrink;
      d.tolerance = rounding;
    }
  }
  if (const auto& approximation = p.approximation; approximation != nullptr) {
    nearness.range = approximation->score_range();
    nearness.proved = approximation->output_error();
    if (approximation->by_rows()) {
      const auto why_not = approximation->unproved();
      nearness.by_rows = !why_not;
      nearness.unproved = why_not.value_or("");
    }
    if (monomials.largest_v > 0) nearness.distance /= monomials.largest_v;
    v.nearness = nearness;
  }
  if (given) v.given = given_check.finish();
  for (auto& [a, gap, d] : differences) {
    const auto out = std::find_if(v.outputs.begin(), v.outputs.end(),
                                  [name = tensor_name(a)](const Deviation& x) { return x.name == name; });
    const double relative = out->tolerance + 2 * std::min(gap, 0.1);
    const Matrix<double> ours = gathered(p, tensors, a, 0);
    double square = 0;
    const bool of_outputs = p.op == Operation::tangent;
    const Matrix<double> moves = of_outputs ? ours : gathered(p, tensors, input_of(a), 0);
    for (const double x : moves.words) square += of_outputs || is_of_modifiers(a) ? 1 : x * x;
    double largest = relative_to.contains(a) ? relative_to.at(a) : comparisons[a].largest;
    for (const double x : ours.words) largest = std::max(largest, std::abs(x));
    // Errors of entries add up like a random walk along a random direction; allow a few times that.
    d.tolerance += 8 * relative * largest * std::sqrt(square);
    d.name = tensor_name(a);
    v.differences.push_back(d);
  }
  for (const auto& [a, n] : nan_inputs)
    if (n > 0) v.nan_inputs.emplace_back(tensor_name(a), n);
  return v;
}

}  // namespace

bool Difference::ok() const { return std::abs(gradient - difference) <= tolerance; }

bool Verification::ok() const {
  const auto all_ok = [](const auto& list) {
    return std::all_of(list.begin(), list.end(), [](const auto& x) { return x.ok(); });
  };
  return all_ok(outputs) && all_ok(given) && all_ok(differences) && (!nearness || nearness->ok()) &&
         nan_inputs.empty() && nan_outputs == 0;
}

Verification verify(const Problem& problem, const Tensors& tensors, DType compute, const Roundings& roundings) {
  if (problem.accumulate || problem.op == Operation::merge)
    throw InvalidProblem("verify: the run has added to outputs that were given; give a copy of what they were, too");
  require_shapes(problem, inputs_of(problem), tensors);
  require_shapes(problem, outputs_of(problem), tensors);
  if (compute != DType::f32 && compute != DType::f64)
    throw Unsupported(fmt::format("compute type {}: arithmetic is f32 or f64", name_of(compute)));
  // Where a sum has more than kBlock blocks, the chain that adds them up is the longer one.
  const Sizes x = problem.sizes();
  const index_t block = std::max({oracle::kBlock, roundings.additions, std::max(x.n_q, x.n_k) / oracle::kBlock});
  // Plain attention loses what a run loses; the wider type has room for it.
  const threads::FlushSubnormals as_in_a_run(problem.method_kind() == MethodKind::exact);
  return compute == DType::f64 ? verify_in<double, long double>(problem, tensors, compute, block, roundings.lse)
                               : verify_in<float, double>(problem, tensors, compute, block, roundings.lse);
}

Verification verify(const Problem& problem, const Inputs& inputs, const Outputs& outputs, DType compute,
                    const Roundings& roundings) {
  return verify(problem, tensors_of(inputs, outputs), compute, roundings);
}
}  // namespace redblue
