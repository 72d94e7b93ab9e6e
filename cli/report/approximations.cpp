#include "report/approximations.hpp"

#include <fmt/format.h>

#include "report/certificate.hpp"

namespace redblue::cli {

void add_approximation(Json& j, const Problem& p) {
  const Polynomial* polynomial = polynomial_of(p);
  if (polynomial != nullptr)
    j["approximation"] = {{"degree", polynomial->degree()},    {"fit", std::string(name_of(polynomial->fit))},
                          {"range", polynomial->range},        {"coefficients", polynomial->c},
                          {"weight_error", polynomial->error}, {"output_error", polynomial->output_error()}};
  if (const RowPolynomials* rows = row_polynomials_of(p); rows != nullptr)
    j["approximation"]["rows"] = {{"centred", rows->centred},
                                  {"exact_keys", rows->exact_keys},
                                  {"exact_rows", rows->exact_rows},
                                  {"cluster", rows->cluster},
                                  {"seed", rows->seed}};
  if (p.approximation != nullptr && polynomial == nullptr) j["method"] = p.approximation->title(p.n_k);
}

namespace {

/// What is proved where each row has its polynomial.
void print_rows(const RowPolynomials& rows) {
  const Polynomial& last = rows.last();
  if (rows.proves())
    fmt::print("proved for any scores, rows beyond {} are exact: each entry of O within {:.3g} max|V|\n\n", last.range,
               last.output_error());
  else if (rows.by_spread())
    fmt::print("nothing is proved of a gaussian fit; rows whose scores spread beyond {} {}\n\n", last.range,
               rows.exact_rows ? "are exact" : "take the polynomial of that spread");
  else
    fmt::print("nothing is proved: rows beyond {} take the polynomial of that range\n\n", last.range);
}

}  // namespace

void print_what_is_proved(const Problem& p) {
  if (const RowPolynomials* rows = row_polynomials_of(p); rows != nullptr)
    print_rows(*rows);
  else if (const Polynomial* a = polynomial_of(p); a != nullptr)
    fmt::print(
        "proved for scores from {} to {}: each weight within {:.3g} of itself{}\n\n", -a->range, a->range, a->error,
        is_forward(p.op) ? fmt::format(", each entry of O within {:.3g} max|V| of exact attention", a->output_error())
                         : "");
}

void require_tolerance(double tolerance) {
  if (!(tolerance > 0 && tolerance < 1))
    throw InvalidProblem(fmt::format("--tolerance {}: give a number above 0 and below 1, as in 1e-3{}", tolerance,
                                     tolerance == 0 ? "; attention without --tolerance is exact" : ""));
}

PlanWithin plan_within(double tolerance, double range, const std::function<plan::Plan()>& exact,
                       const std::function<plan::Plan(const std::string& approximate)>& approximate) {
  std::optional<plan::Plan> of_exact, of_polynomial;
  const Decision d = decide(
      tolerance, range, least_polynomial(range, tolerance), [&] { return of_exact.emplace(exact()); },
      [&](const std::shared_ptr<const Polynomial>& p) {
        return of_polynomial.emplace(approximate(fmt::format("{}:{}", p->degree(), p->range)));
      });
  return {d.polynomial != nullptr ? std::move(*of_polynomial) : std::move(*of_exact), to_json(d), d.reason};
}

struct Proof::Parts {
  std::optional<Decision> decision;
  std::optional<Certificate> certificate;
  std::optional<MeasuredError> measured;

  std::optional<double> tolerance() const { return decision ? std::optional(decision->tolerance) : std::nullopt; }
};

Proof::Proof() : parts_(std::make_unique<Parts>()) {}
Proof::Proof(Proof&&) noexcept = default;
Proof::~Proof() = default;

void Proof::settle(std::optional<double> tolerance, bool wants_lse, Problem& problem, const Tensors& t, DType compute,
                   const std::function<plan::Plan(const Problem&)>& plan) {
  const Inputs inputs{t[SlowArray::Q], t[SlowArray::K], t[SlowArray::V]};
  try {
    parts_->certificate = norms_of(problem, inputs, compute);
  } catch (const InvalidProblem& e) {
    throw InvalidProblem(
        fmt::format("{}; attention without --tolerance and --certificate takes such numbers", e.what()));
  }
  if (tolerance) {
    Problem approximate = problem;
    approximate.lse_required = wants_lse;
    const Decision& d = parts_->decision.emplace(
        decide_with_rows(approximate, *parts_->certificate, inputs, *tolerance, [&] { return plan(problem); }, plan));
    if (d.polynomial != nullptr) {
      problem = approximate;
      problem.approximation = d.approximation();
    }
  }
  if (problem.approximation != nullptr) parts_->certificate = certify(problem, inputs, compute);
}

void Proof::compare(const std::optional<Verification>& v) {
  if (parts_->certificate && v && v->nearness) parts_->measured = measured_error(*parts_->certificate, *v->nearness);
}

bool Proof::ok() const { return !parts_->measured || parts_->measured->ok; }

void Proof::add_to(Json& j, const Problem& p) const {
  const auto& [decision, certificate, measured] = *parts_;
  if (decision) j["tolerance"] = to_json(*decision);
  if (decision && decision->polynomial != nullptr)
    j["tolerance"]["proved_of_numbers"] = certificate->output_error() + certificate->rounding();
  if (certificate) j["certificate"] = to_json(*certificate, p, parts_->tolerance());
  if (measured) j["certificate"]["verify"] = to_json(*measured);
}

void Proof::print() const {
  const auto& [decision, certificate, measured] = *parts_;
  if (decision) fmt::print("tolerance {:g}: {}\n", decision->tolerance, decision->reason);
  if (certificate && !certificate->polynomial.c.empty()) print_text(*certificate, parts_->tolerance());
  if (measured) print_text(*measured);
}

Json Proof::certificate(const Problem& p, std::optional<double> tolerance) const {
  return to_json(*parts_->certificate, p, tolerance);
}

}  // namespace redblue::cli
