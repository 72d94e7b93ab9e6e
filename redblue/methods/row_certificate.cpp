#include <functional>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "redblue/methods/proof.hpp"
#include "redblue/methods/row_radii.hpp"

namespace redblue {

namespace {

using LongReal = proof::Real;

/// Lengths and radii are formed in doubles, here and by whoever checks a certificate: bounds hold with this share of
/// them to spare.
constexpr double kSpare = 0x1p-40;

/// How far what a run finds may be from what is: `share` of a radius, beside that of the longest key, which is off by
/// `of_key` of the longest of all keys. (The mean of the keys takes in a rounding for each.)
struct Uncertain {
  double share, of_key;
};
Uncertain uncertain(const Certificate& c) {
  const auto unit = static_cast<double>(proof::format_of(c.compute).unit);
  return {static_cast<double>(c.d + 8) * unit + kSpare, static_cast<double>(c.keys + 8) * unit + kSpare};
}

/// A run finds no radius of this query below: HeadCertificate::longest is known up to what that of the key is off by,
/// and under a mask a query may see shorter keys only.
double least_radius(const Certificate& c, const HeadCertificate& h, double query) {
  if (c.masked) return 0;
  const auto [share, of_key] = uncertain(c);
  const double shortest = std::max(0.0, h.longest - 2 * of_key * h.largest_k);
  return std::abs(c.scale) * query * shortest * (1 - 2 * share) - 2 * share * c.rows->step();
}

/// The polynomial for this radius.
index_t number_of(const RowPolynomials& rows, double radius) {
  const double number = std::ceil(radius / rows.step()) - 1;
  return static_cast<index_t>(std::clamp(number, 0.0, static_cast<double>(rows.steps() - 1)));
}

/// No score for which polynomial k is taken is beyond this.
double reach_of(const Certificate& c, index_t k) { return (*c.rows)[k].range * (1 + 4 * uncertain(c).share); }

/// Certificate::row_errors up to polynomial `last`. Proofs take a millisecond each: one is made once.
std::vector<double> row_errors_of(const Certificate& c, index_t last) {
  static std::mutex mutex;
  static std::map<std::tuple<index_t, double, Fit, double>, std::vector<double>> known;
  const std::lock_guard lock(mutex);
  std::vector<double>& list = known[{c.rows->degree(), c.rows->range(), c.rows->fit, uncertain(c).share}];
  for (index_t k = std::ssize(list); k <= last; ++k) list.push_back(proved_error((*c.rows)[k].c, reach_of(c, k)));
  return {list.begin(), list.begin() + last + 1};
}

/// Could a length come out far too short because squares vanish?
bool lengths_may_vanish(const Certificate& c, const HeadCertificate& h) {
  const double lost = std::sqrt(static_cast<double>(c.d)) * (c.compute == DType::f64 ? 0x1p-537 : 0x1p-74);
  return !(std::abs(c.scale) * lost * (h.largest_q + h.longest + lost) <= uncertain(c).share * c.rows->step());
}

/// HeadCertificate::rounding. Beside what one polynomial of all rows takes in: centring a coordinate of a key, one
/// rounding in each power; what an exponential of a score is off by, absolutely a rounding of the score for each
/// product; and a new maximum for each key that is met as a score.
double rounding_of_rows(const Certificate& c, const HeadCertificate& h) {
  const RowPolynomials& rows = *c.rows;
  const index_t g = rows.degree(), kept = std::min(rows.exact_keys, c.keys);
  const double times = rows.centred ? 2 : 1, far = times * h.range;
  if (proof::may_leave_numbers(c, h, std::max<index_t>(2, g), times * h.largest_k, h.radius) ||
      lengths_may_vanish(c, h) || !(h.weight_error < 1))
    return proof::kInfinity;
  const LongReal u = proof::format_of(c.compute).unit, of_score = static_cast<LongReal>(c.d + 24) * far;
  const LongReal of_state =
      monomials(c.d, g).to_double() + static_cast<LongReal>(c.keys + 7 * g + 8 + 5 * kept) + (kept > 0 ? of_score : 0);
  LongReal share = proof::gamma(static_cast<LongReal>(6 * c.keys + 16) + of_score, u);
  for (index_t k = 0; h.radius > 0 && k <= number_of(rows, h.radius); ++k) {
    const LongReal reach = reach_of(c, k);
    share = std::max(share, proof::gamma(of_state, u) * proof::magnitude(rows[k], reach) * std::exp(reach) /
                                (1 - static_cast<LongReal>(h.weight_error)));
  }
  const LongReal vanished = c.compute == DType::f64 ? 0x1p-110 : 0x1p-30;
  return proof::added_by(c, h, share, (rows.centred ? 4 * u * h.range : 0) + vanished);
}

/// f(a key) for those that a row sees.
template <class F>
void for_seen_keys(const Problem& p, const Tensors& tensors, index_t instance, const proof::NowAndThen& now_and_then,
                   const F& f) {
  const Sizes x = p.sizes();
  const Range seen = x.mask.keys(Range{0, x.n_q}, x.n_k);
  proof::for_rows(p, tensors, SlowArray::K, instance, now_and_then, [&](index_t j, const std::vector<double>& row) {
    if (seen.holds(j)) f(row);
  });
}

/// The distances of keys from their mean, for which it reads the keys twice.
std::vector<double> from_mean(const Problem& p, const Tensors& tensors, index_t instance, std::size_t keys,
                              const proof::NowAndThen& now_and_then) {
  std::vector<LongReal> mean(static_cast<std::size_t>(p.d));
  for_seen_keys(p, tensors, instance, now_and_then, [&](const std::vector<double>& row) {
    for (std::size_t t = 0; t < row.size(); ++t) mean[t] += row[t] / static_cast<LongReal>(keys);
  });
  std::vector<double> lengths;
  lengths.reserve(keys);
  for_seen_keys(p, tensors, instance, now_and_then, [&](std::vector<double> row) {
    for (std::size_t t = 0; t < row.size(); ++t) row[t] = static_cast<double>(row[t] - mean[t]);
    lengths.push_back(proof::norm(row));
  });
  return lengths;
}

}  // namespace

double longest_key(const Certificate& c, std::size_t head, const RowOptions& how, const RowLengths& lengths) {
  const RowLengths::Keys& keys = lengths.keys[head / (c.heads.size() / lengths.keys.size())];
  const std::vector<double>& list = how.centred ? keys.from_mean : keys.as_they_are;
  const double longest = how.exact_keys < std::ssize(list) ? list[static_cast<std::size_t>(how.exact_keys)] : 0;
  return longest + uncertain(c).of_key * c.heads[head].largest_k;
}

double most_radius(const Certificate& c, double longest, double query) {
  return std::abs(c.scale) * query * longest * (1 + uncertain(c).share);
}

RowLengths lengths_of(const Problem& p, const Inputs& inputs, const std::function<void()>& now_and_then) {
  const Tensors tensors = tensors_of(inputs, Outputs{});
  require_shapes(p, {SlowArray::Q, SlowArray::K}, tensors);
  RowLengths lengths;
  const index_t group = p.group();
  lengths.queries.resize(static_cast<std::size_t>(p.batch * p.heads));
  lengths.keys.resize(static_cast<std::size_t>(p.instances()));
  for (index_t instance = 0; instance < p.instances(); ++instance) {
    proof::for_rows(p, tensors, SlowArray::Q, instance, now_and_then, [&](index_t i, const std::vector<double>& row) {
      lengths.queries[static_cast<std::size_t>(instance * group + i % group)].push_back(proof::norm(row));
    });
    RowLengths::Keys& keys = lengths.keys[static_cast<std::size_t>(instance)];
    for_seen_keys(p, tensors, instance, now_and_then,
                  [&](const std::vector<double>& row) { keys.as_they_are.push_back(proof::norm(row)); });
    keys.from_mean = from_mean(p, tensors, instance, keys.as_they_are.size(), now_and_then);
    for (std::vector<double>* list : {&keys.as_they_are, &keys.from_mean})
      std::sort(list->begin(), list->end(), std::greater<>());
  }
  return lengths;
}

void Certificate::prove(std::shared_ptr<const RowPolynomials> p, const RowLengths& lengths) {
  rows = std::move(p);
  polynomial = rows->last();
  index_t last = 0;
  for (std::size_t k = 0; k < heads.size(); ++k) {
    HeadCertificate& h = heads[k];
    h.longest = longest_key(*this, k, *rows, lengths);
    h.radius = 0;
    h.exact_rows = 0;
    for (const double query : lengths.queries[k]) {
      double radius = most_radius(*this, h.longest, query);
      if (rows->exact_rows && radius > rows->range()) ++h.exact_rows;
      if (rows->exact_rows && masked) radius = std::min(radius, rows->range());  // as a run finds it, or it is exact
      if (!rows->exact_rows || least_radius(*this, h, query) <= rows->range())
        h.radius = std::max({h.radius, radius, uncertain(*this).share * rows->step()});
    }
    last = std::max(last, number_of(*rows, h.radius));
  }
  row_errors = row_errors_of(*this, last);
  for (HeadCertificate& h : heads) {
    const auto end = row_errors.begin() + (h.radius > 0 ? number_of(*rows, h.radius) + 1 : 0);
    h.weight_error = end == row_errors.begin() ? 0 : *std::max_element(row_errors.begin(), end);
    if (!rows->exact_rows && h.radius > rows->range()) h.weight_error = proof::kInfinity;
    h.output_error = proof::moved_values(h.weight_error, h.spread);
    h.rounding = rounding_of_rows(*this, h);
  }
}

}  // namespace redblue
