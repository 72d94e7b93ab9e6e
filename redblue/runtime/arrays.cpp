#include <fmt/format.h>
#include <fmt/ranges.h>

#include "redblue/language/word_type.hpp"
#include "redblue/runtime/run.hpp"

/// Tensors before there is memory for them, and within the memory that there is.
namespace redblue {

Tensors contiguous_tensors(const Problem& p, DType dtype) {
  const Shapes shapes(p);
  Tensors tensors;
  for (const auto& list : {shapes.inputs(), shapes.outputs()})
    for (const SlowArray a : list)
      if (!is_statistic(a))
        tensors[a] = Tensor(nullptr, adds_to(p, a) ? word_of(dtype) : dtype, shapes[a]);
      else if (!is_forward(p.op) || p.lse_required || adds_to(p, a))
        tensors[a] = Tensor(nullptr, word_of(dtype), shapes[a]);
  return tensors;
}

void detail::require_within(std::size_t words, const std::array<index_t, 4>& shape,
                            const std::array<index_t, 4>& strides) {
  Words first = 0, last = 0;  // 128 bits
  for (std::size_t i = 0; i < 4; ++i) {
    if (shape[i] < 1) return;  // of no words; a run says that it does not fit
    (strides[i] < 0 ? first : last) += Words(shape[i] - 1) * strides[i];
  }
  if (first < 0 || last >= words)
    throw InvalidProblem(
        fmt::format("a tensor [{}] with strides [{}] reaches from word {} to word {} of {}: give more words, or other "
                    "strides (in elements)",
                    fmt::join(shape, ", "), fmt::join(strides, ", "), first.str(), last.str(), words));
}

}  // namespace redblue
