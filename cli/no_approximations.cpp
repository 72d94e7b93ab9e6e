#include <fmt/core.h>

#include "commands/commands.hpp"
#include "redblue/language/error.hpp"
#include "redblue/problem/approximation.hpp"
#include "report/approximations.hpp"

/// This file stands in place of what the program does with approximations, where they are left out of the build.
namespace redblue::cli {

namespace {

[[noreturn]] void refuse(std::string_view what) { throw Unsupported(fmt::format("{}: {}", what, kNoApproximations)); }

void add_refused(Program& program, const char* name) {
  program.command(name, std::string(kNoApproximations)).does([name]() -> int { refuse(name); });
}

}  // namespace

void add_compare(Program& program) { add_refused(program, "compare"); }
void add_regimes(Program& program) { add_refused(program, "regimes"); }

void add_approximation(Json&, const Problem&) {}
void print_what_is_proved(const Problem&) {}
void require_tolerance(double) { refuse("--tolerance"); }
PlanWithin plan_within(double, double, const std::function<plan::Plan()>&,
                       const std::function<plan::Plan(const std::string&)>&) {
  refuse("--tolerance");
}

struct Proof::Parts {};
Proof::Proof() = default;
Proof::Proof(Proof&&) noexcept = default;
Proof::~Proof() = default;
void Proof::settle(std::optional<double>, bool, Problem&, const Tensors&, DType,
                   const std::function<plan::Plan(const Problem&)>&) {
  refuse("--tolerance and --certificate");
}
void Proof::compare(const std::optional<Verification>&) {}
bool Proof::ok() const { return true; }
void Proof::add_to(Json&, const Problem&) const {}
void Proof::print() const {}
Json Proof::certificate(const Problem&, std::optional<double>) const { refuse("--certificate"); }

}  // namespace redblue::cli
