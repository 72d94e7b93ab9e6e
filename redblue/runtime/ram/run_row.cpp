#include "redblue/runtime/ram/run_row.hpp"

namespace redblue {

template <class T>
Measured run_row(const plan::Plan& plan, const plan::Prepared& prepared, const Resources<T>& with) {
  return run_row_on(plan, prepared, with, [](machine::Ram<T>& ram) -> machine::Ram<T>& { return ram; });
}

template Measured run_row(const plan::Plan&, const plan::Prepared&, const Resources<float>&);
template Measured run_row(const plan::Plan&, const plan::Prepared&, const Resources<double>&);

}  // namespace redblue
