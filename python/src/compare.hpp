#pragma once
#include <optional>
#include <string>
#include <vector>

#include "module.hpp"
#include "plan.hpp"

/// Approximations beside exact attention on Python's arrays.
namespace redblue::python {

/// What `redblue compare --json` prints, as a dict; certificates in it are as Plan.certificate() has them. `methods`:
/// those alone; None: all there are. `arrays` as in run.hpp.
nb::dict compare(const Problem& problem, nb::handle arrays, bool tokens_first, const Wanted& wanted,
                 const std::optional<std::vector<std::string>>& methods, index_t repetitions, index_t seeds);

}  // namespace redblue::python
