#include "certify.hpp"
#include "compare.hpp"
#include "redblue/machine.hpp"
#include "redblue/problem.hpp"
#include "regimes.hpp"

/// This file stands in place of certify.cpp, compare.cpp and regimes.cpp where approximations are left out
/// (-DREDBLUE_METHODS=OFF).
namespace redblue::python {

namespace {

[[noreturn]] void refuse() { throw Unsupported(std::string(kNoApproximations)); }

}  // namespace

nb::dict certificate(const NamedPlan&, nb::handle, bool) { refuse(); }
nb::tuple within(const NamedPlan&, nb::handle, bool, const Wanted&, double) { refuse(); }
nb::tuple plan_within(const Problem&, const Wanted&, double, double) { refuse(); }
nb::dict compare(const Problem&, nb::handle, bool, const Wanted&, const std::optional<std::vector<std::string>>&,
                 index_t, index_t) {
  refuse();
}
void add_regimes(nb::module_&) {}

}  // namespace redblue::python
