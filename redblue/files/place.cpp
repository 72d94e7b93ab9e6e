#include "redblue/files/place.hpp"

#include <fmt/format.h>

#include "redblue/files/input_file.hpp"
#include "redblue/files/tensor_file.hpp"
#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"

namespace redblue::file {

namespace {

/// "[2, 3] of f32 at byte 64 of 'x'"
std::string place_text(const TensorPlace& place) {
  return fmt::format("[{}] of {} at byte {} of '{}'", text_of(place.shape), name_of(place.dtype), place.offset,
                     place.path);
}

}  // namespace

ByteRange byte_range(const TensorPlace& place) {
  const auto fail = [&](const std::string& what) -> InvalidProblem {
    return InvalidProblem(fmt::format("no tensor is {}: {}", place_text(place), what));
  };
  const auto width = static_cast<index_t>(size_of(place.dtype));
  if (place.offset < 0) throw fail("the offset is negative");
  if (place.strides.size() != place.shape.size())
    throw fail(fmt::format("it has {} strides for {} dimensions", place.strides.size(), place.shape.size()));
  const auto count = element_count(place.shape, width);
  if (!count) throw fail("the shape is negative or its size overflows 63 bits");
  if (*count == 0) return {place.offset, place.offset};
  ByteRange range{place.offset, place.offset};
  bool overflow = __builtin_add_overflow(range.end, width, &range.end);
  for (std::size_t k = 0; k < place.shape.size(); ++k) {
    index_t steps = 0;
    overflow = overflow || __builtin_mul_overflow(place.strides[k], width, &steps);
    overflow = overflow || __builtin_mul_overflow(steps, place.shape[k] - 1, &steps);
    index_t& side = steps < 0 ? range.begin : range.end;
    overflow = overflow || __builtin_add_overflow(side, steps, &side);
  }
  if (overflow) throw fail(fmt::format("with strides [{}] it overflows 63 bits", text_of(place.strides)));
  if (range.begin < 0) throw fail(fmt::format("strides [{}] lead before the file", text_of(place.strides)));
  return range;
}

void require_in_file(const TensorPlace& place) {
  const index_t end = byte_range(place).end, size = InputFile(place.path).size();
  if (end > size)
    throw IoError(
        fmt::format("a tensor of {} ends at byte {}, and the file has {} bytes", place_text(place), end, size),
        place.path, size);
}

}  // namespace redblue::file
