#include "redblue/planner/shapes.hpp"

#include <algorithm>
#include <cctype>

#include "redblue/schedules/matrices.hpp"
#include "redblue/schedules/schedule.hpp"

namespace redblue {

namespace {

bool is_copy(const Problem& p, SlowArray a) {
  return (a == SlowArray::A3 && p.sources != Sources::distinct) || (a == SlowArray::A2 && p.sources == Sources::self);
}

/// Without a product: sizes may be larger than any memory.
bool has_words(Shape s) { return s.rows > 0 && s.cols > 0; }

}  // namespace

std::string tensor_name(SlowArray a) {
  std::string name(name_of(a));
  for (char& letter : name) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return name;
}

std::vector<SlowArray> inputs_of(const Problem& p) { return Shapes(p).inputs(); }

std::vector<SlowArray> outputs_of(const Problem& p) { return Shapes(p).outputs(); }

bool adds_to(const Problem& p, SlowArray a) {
  const auto outputs = plan::outputs_of(p.op);
  return (p.accumulate || p.op == Operation::merge) && std::ranges::find(outputs, a) != outputs.end();
}

Shapes::Shapes(const Problem& p) : problem_(p), sizes_(p.sizes()), matrices_(plan::matrices_of(p.op, sizes_)) {}

std::vector<SlowArray> Shapes::inputs() const {
  const Problem& p = problem_;
  std::vector<SlowArray> list;
  list.reserve(plan::inputs_of(p.op).size());
  for (const SlowArray a : plan::inputs_of(p.op)) {
    const bool computed = follows_forward(p.op) && !p.forward_given && (a == SlowArray::O || a == SlowArray::lse);
    if (!computed && !is_copy(p, a) && has_words(matrix(a))) list.push_back(a);
  }
  return list;
}

std::vector<SlowArray> Shapes::outputs() const {
  std::vector<SlowArray> list;
  list.reserve(plan::outputs_of(problem_.op).size());
  for (const SlowArray a : plan::outputs_of(problem_.op))
    if (has_words(matrix(a))) list.push_back(a);
  return list;
}

Shape Shapes::matrix(SlowArray array) const {
  const auto found = std::ranges::find(matrices_, array, &SlowMatrix::array);
  return found == matrices_.end() ? Shape{0, 0} : found->shape;
}

std::array<index_t, 4> Shapes::operator[](SlowArray array) const {
  const Problem& p = problem_;
  if (is_like_bias(array)) return p.bias.value_or(std::array<index_t, 4>{});
  if (is_of_heads(array)) return {1, p.heads, 1, 1};
  const Shape s = matrix(array);
  if (side_of(array) == Side::queries) return {p.batch, p.heads, s.rows / p.group(), s.cols};
  return {p.batch, p.kv_heads.value_or(p.heads), s.rows, s.cols};
}

std::array<index_t, 4> shape_of(const Problem& p, SlowArray array) { return Shapes(p)[array]; }

}  // namespace redblue
