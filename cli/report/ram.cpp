#include "report/ram.hpp"

#include <fmt/format.h>

namespace redblue::cli {

namespace {

Words bytes_of(const Tensor& t) {
  Words bytes = size_of(t.dtype);
  for (std::size_t k = 0; k < 4; ++k)
    if (t.strides[k] != 0 || t.shape[k] < 1) bytes = bytes * t.shape[k];
  return bytes;
}

std::string gib(Words bytes) { return fmt::format("{:.3g} GiB", bytes.to_double() / 0x1p30); }

}  // namespace

std::string Ram::text() const {
  return fmt::format("{} of memory ({} for inputs, {} for outputs, {} beside them)", gib(total()), gib(inputs),
                     gib(outputs), gib(beside));
}

Json Ram::json() const {
  return {{"inputs", to_json(inputs)},
          {"outputs", to_json(outputs)},
          {"beside", to_json(beside)},
          {"total", to_json(total())}};
}

Ram ram_of(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options) {
  Ram ram;
  for (const SlowArray a : inputs_of(plan.problem)) ram.inputs += bytes_of(tensors[a]);
  for (const SlowArray a : outputs_of(plan.problem)) ram.outputs += bytes_of(tensors[a]);
  ram.beside = memory_cap(0, tensors, options).bytes_of(plan);
  return ram;
}

}  // namespace redblue::cli
