#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "redblue/runtime/run.hpp"
#include "redblue/verify/verify.hpp"
#include "report/json.hpp"

/// What the program does with approximations. Where they are left out of the build (-DREDBLUE_METHODS=OFF),
/// no_approximations.cpp takes the place of approximations.cpp, certificate.cpp, compare.cpp and regimes.cpp.
namespace redblue::cli {

/// Adds "approximation" or "method" to the JSON of a problem.
void add_approximation(Json& j, const Problem& p);
/// Prints what is proved of the problem's approximation.
void print_what_is_proved(const Problem& p);

/// Throws InvalidProblem unless the tolerance is a number above 0.
void require_tolerance(double tolerance);

/// The plan that --tolerance and --range choose.
struct PlanWithin {
  plan::Plan plan;
  Json json;
  std::string reason;
};
/// `exact` makes the plan of exact attention, `approximate` that of --approximate with this text.
PlanWithin plan_within(double tolerance, double range, const std::function<plan::Plan()>& exact,
                       const std::function<plan::Plan(const std::string& approximate)>& approximate);

/// What is proved of a run: nothing, unless --tolerance or --certificate asks.
class Proof {
 public:
  Proof();
  Proof(Proof&&) noexcept;
  ~Proof();

  /// Settles --tolerance: sets the approximation of a problem, or leaves it exact. `wants_lse`: is there a file for it?
  /// `plan` makes the plan of a problem.
  void settle(std::optional<double> tolerance, bool wants_lse, Problem& problem, const Tensors& t, DType compute,
              const std::function<plan::Plan(const Problem&)>& plan);
  /// After a verification; its errors are of polynomial attention only.
  void compare(const std::optional<Verification>& v);
  bool ok() const;
  void add_to(Json& j, const Problem& p) const;
  void print() const;
  /// What --certificate writes.
  Json certificate(const Problem& p, std::optional<double> tolerance) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace redblue::cli
