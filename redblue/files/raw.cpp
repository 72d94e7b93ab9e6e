#include "redblue/files/raw.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "redblue/files/input_file.hpp"
#include "redblue/files/mapped_file.hpp"
#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"

namespace redblue::file {

TensorPlace place_of(const RawTensor& raw) {
  const auto& [path, dtype, shape, strides, offset] = raw;
  const auto width = static_cast<index_t>(size_of(dtype));
  if (!element_count(shape, width))
    throw InvalidProblem(fmt::format("'{}' cannot hold [{}] of {}: the shape is negative or its size overflows 63 bits",
                                     path, text_of(shape), name_of(dtype)));
  if (offset && *offset < 0) throw InvalidProblem(fmt::format("byte {} of '{}': give 0 or more", *offset, path));
  if (strides && std::ranges::any_of(*strides, [](index_t s) { return s < 0; }))
    throw InvalidProblem(
        fmt::format("strides [{}] of '{}': give 0 or more elements; write the tensor anew in the "
                    "other order",
                    text_of(*strides), path));
  TensorPlace place{path,
                    offset.value_or(0),
                    dtype,
                    shape,
                    strides.value_or(c_order_strides(shape)),
                    std::endian::native == std::endian::big};
  const index_t size = InputFile(path).size(), bytes = byte_range(place).end - place.offset;
  const bool whole = !offset && !strides;
  if (bytes > size - place.offset || (whole && bytes != size))
    throw IoError(
        fmt::format("[{}] of {} takes {} bytes{}, and '{}' has {}: {}", text_of(shape), name_of(dtype), bytes,
                    whole ? "" : fmt::format(" from byte {} on", place.offset), path, size,
                    whole && bytes < size ? "give the byte at which the tensor begins, 0 if only other data follow it"
                                          : "is it this shape and this type?"),
        path, size);
  return place;
}

Tensor read_raw(const RawTensor& raw) {
  TensorPlace place = place_of(raw);
  const auto width = static_cast<index_t>(size_of(place.dtype));
  if (raw.strides && (place.offset % width != 0 || place.swap_bytes))
    throw Unsupported(
        fmt::format("'{}': with strides, elements must lie as this machine reads them, at a multiple of "
                    "{} bytes; write the tensor anew, row by row",
                    raw.path, width));
  const auto file = std::make_shared<const MappedFile>(raw.path);
  if (static_cast<index_t>(file->bytes().size()) < byte_range(place).end)
    throw IoError(fmt::format("'{}' has become shorter while it was opened", raw.path), raw.path);
  const std::byte* const first = file->bytes().data() + place.offset;
  return Tensor({place.dtype, std::move(place.shape), std::move(place.strides), first, place.swap_bytes}, file);
}

}  // namespace redblue::file
