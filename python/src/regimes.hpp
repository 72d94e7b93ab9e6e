#pragma once
#include "module.hpp"

/// Where polynomial attention moves fewer words than exact attention.
namespace redblue::python {

void add_regimes(nb::module_& m);

}  // namespace redblue::python
