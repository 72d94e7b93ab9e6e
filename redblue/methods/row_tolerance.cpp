#include "redblue/methods/row_tolerance.hpp"

#include <algorithm>
#include <cmath>

#include "redblue/methods/regimes.hpp"
#include "redblue/methods/row_radii.hpp"

namespace redblue {

namespace {

struct RowCandidate {
  index_t degree;
  double range;
  RowOptions how;
  Words state;        ///< it needs more fast memory than this
  Words least_words;  ///< it moves no fewer
};

/// The error of weights that proves the tolerance, for the head that needs the smallest.
double wanted_weight_error(const Certificate& norms, double tolerance) {
  double share = 0.99;
  for (const HeadCertificate& h : norms.heads)
    if (h.spread > 0) share = std::min(share, tolerance * h.largest_v / h.spread);
  return 2 * share / (1 + share * share) * (1 - 1e-9);  // moved_share of it is `share`
}

/// Rows that see a key.
index_t seeing_rows(const Sizes& x) { return x.mask.rows(Range{0, x.n_k}, x.n_q).size(); }

/// The keys that pass the last h rows, which are taken `at_a_time`.
Words keys_passing(const Sizes& x, index_t h, const Words& at_a_time) {
  const index_t step = std::clamp(at_a_time, Words(1), Words(x.n_q)).to_index();
  Words all;
  for (index_t done = 0; done < h; done += step) all += x.mask.keys(x.n_q - 1 - done, x.n_k).end;
  return all;
}

/// The words of polynomial_rows, or of polynomial_pairs where exact keys do not fit beside the state (not under a
/// mask), if rows had all the fast memory that is left: where h rows of an instance, under a mask the last ones, are
/// exact. The result is empty where no row fits.
std::optional<Words> least_words(const Problem& p, const RowOptions& how, const std::vector<index_t>& listed,
                                 const Words& M, const Words& state) {
  const Sizes x = p.sizes();
  const index_t pair = p.d + p.d_v, rows = seeing_rows(x), seen = x.mask.keys(Range{0, x.n_q}, x.n_k).end;
  Words keys = Words(seen) * pair + Words(how.centred ? seen * p.d : 0);
  if (M > 0 && state + Words(how.exact_keys) * pair > M) {
    if (M < state + how.exact_keys + pair + 2 || !x.mask.full()) return std::nullopt;
    const Words visits = (Words(rows) - 1) / ((M - state - how.exact_keys) / (pair + 2)) + 1;
    keys += Words(p.n_k) * p.d + (visits - 1) * how.exact_keys * pair;
  }
  Words all;
  for (const index_t h : listed) {
    const Words at_a_time = M > 0 ? M / (pair + 3) : Words(h);
    all += keys + keys_passing(x, h, at_a_time) * pair + Words(rows) * pair + Words(h) * (p.d + 2);
  }
  return all;
}

/// Rows of each instance that are beyond this range.
std::vector<index_t> rows_beyond(const std::vector<std::vector<double>>& radii, std::size_t instances, double range) {
  std::vector<index_t> listed(instances);
  for (std::size_t k = 0; k < radii.size(); ++k)
    listed[k / (radii.size() / instances)] +=
        std::count_if(radii[k].begin(), radii[k].end(), [&](double radius) { return radius > range; });
  return listed;
}

std::vector<std::vector<double>> radii_of(const Certificate& norms, const RowOptions& how, const RowLengths& lengths) {
  std::vector<std::vector<double>> radii = lengths.queries;
  for (std::size_t k = 0; k < radii.size(); ++k) {
    const double longest = longest_key(norms, k, how, lengths);
    for (double& x : radii[k]) x = most_radius(norms, longest, x);
  }
  return radii;
}

/// The candidate whose number of exact keys (0 or a power of 2) moves the fewest words; of equal words, the fewest
/// keys. The result is empty where nothing fits.
std::optional<RowCandidate> best_candidate(const Problem& p, const Certificate& norms, const RowLengths& lengths,
                                           index_t degree, double widest, bool centred, const Words& M) {
  constexpr double kNarrowest = 0x1p-10;  // as in least_polynomial
  const Words state = monomials(p.d, degree) * (Words(p.d_v) + 1);
  std::optional<RowCandidate> best;
  for (index_t exact_keys = 0; exact_keys < p.n_k; exact_keys = std::max<index_t>(1, 2 * exact_keys)) {
    const RowOptions how{.centred = centred, .exact_keys = exact_keys};
    const auto radii = radii_of(norms, how, lengths);
    double needed = kNarrowest;
    for (const std::vector<double>& of_head : radii)
      for (const double x : of_head) needed = std::max(needed, x);
    const double range = std::min(widest, needed);
    if (range < kNarrowest) continue;
    const auto words = least_words(p, how, rows_beyond(radii, lengths.keys.size(), range), M, state);
    if (words && (!best || *words < best->least_words))
      best = RowCandidate{degree, range, how, state + exact_keys, *words};
  }
  return best;
}

/// In the order of the words that they move at least.
std::vector<RowCandidate> row_candidates(const Problem& p, const Certificate& norms, const RowLengths& lengths,
                                         double tolerance, const Words& M) {
  constexpr index_t kHighestDegree = 8;  // fits of more take tens of milliseconds each
  constexpr double kLeastError = 1e-15;  // coefficients in doubles are no more precise
  const double error = wanted_weight_error(norms, tolerance);
  std::vector<RowCandidate> list;
  if (error < kLeastError) return list;
  for (index_t degree = 1; degree <= kHighestDegree; ++degree) {
    if (M > 0 && monomials(p.d, degree) * (Words(p.d_v) + 1) > M) break;
    const double widest = plan::largest_range(degree, error) * (1 - 1e-3);
    for (const bool centred : {false, true})
      if (const auto best = best_candidate(p, norms, lengths, degree, widest, centred, M)) list.push_back(*best);
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const RowCandidate& a, const RowCandidate& b) { return a.least_words < b.least_words; });
  return list;
}

/// What this plan moves where data make as many rows exact as the certificate allows.
Words words_on(const plan::Plan& plan, const Certificate& c) {
  const plan::Row& row = plan.row();
  const Sizes sizes = plan.problem.sizes();
  const auto group = static_cast<std::size_t>(plan.problem.group());
  Words all;
  for (std::size_t k = 0; k < c.heads.size(); k += group) {
    Decisions decisions{seeing_rows(sizes), 0};
    for (std::size_t q = k; q < k + group; ++q) decisions.worst += c.heads[q].exact_rows;
    decisions.worst = std::min(decisions.worst, decisions.asked);
    all += row.algorithm->costs(sizes, row.tiling, decisions).io.total();
  }
  return all;
}

}  // namespace

RowAnswer fewest_words_by_rows(const Problem& problem, const Certificate& norms, const RowLengths& lengths,
                               double tolerance, const std::optional<Words>& most, const Words& M,
                               const std::function<plan::Plan(const Problem&)>& plan) {
  constexpr int kTried = 4;  // a plan for each takes fits of 64 polynomials
  RowAnswer best;
  std::optional<Words> below = most;
  Words fast = M;
  int tried = 0;
  for (const RowCandidate& x : row_candidates(problem, norms, lengths, tolerance, M)) {
    if (below && x.least_words >= *below) break;
    if (fast > 0 && x.state > fast) continue;
    if (++tried > kTried) break;
    Problem p = problem;
    const auto rows = polynomials_of_rows(x.degree, x.range, x.how);
    p.approximation = rows;
    Certificate c = norms;
    c.prove(rows, lengths);
    if (!(c.output_error() <= tolerance) || !std::isfinite(c.rounding())) continue;
    std::optional<Words> words;
    try {
      words = words_on(plan(p), c);
    } catch (const CapacityError& e) {
      fast = e.available;
      continue;
    } catch (const Error&) {  // as where a schedule is asked for by name
      break;
    }
    if (below && *words >= *below) continue;
    best = {rows, *words, c.exact_rows()};
    below = words;
  }
  return best;
}

}  // namespace redblue
