#pragma once
#include <memory>

#include "redblue/patterns.hpp"

namespace redblue::python {

/// redblue.Pattern: which of n_k keys each query sees.
struct NamedPattern {
  std::shared_ptr<const RunLists> rows;
  index_t n_k = 0;
};

}  // namespace redblue::python
