#include "redblue/files/raw.hpp"

#include <fmt/format.h>

#include <bit>

#include "redblue/files/input_file.hpp"
#include "redblue/files/mapped_file.hpp"
#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"

namespace redblue::file {

TensorPlace raw_place(const std::string& path, DType dtype, std::vector<index_t> shape, std::optional<index_t> offset) {
  const auto width = static_cast<index_t>(size_of(dtype));
  const auto count = element_count(shape, width);
  if (!count)
    throw InvalidProblem(fmt::format("'{}' cannot hold [{}] of {}: the shape is negative or its size overflows 63 bits",
                                     path, text_of(shape), name_of(dtype)));
  if (offset && *offset < 0) throw InvalidProblem(fmt::format("byte {} of '{}': give 0 or more", *offset, path));
  const index_t size = InputFile(path).size(), begin = offset.value_or(0), bytes = *count * width;
  if (bytes > size - begin || (!offset && bytes != size))
    throw IoError(
        fmt::format("[{}] of {} takes {} bytes{}, and '{}' has {}: {}", text_of(shape), name_of(dtype), bytes,
                    offset ? fmt::format(" from byte {} on", begin) : "", path, size,
                    bytes < size && !offset ? "give the byte at which the tensor begins, 0 if only other data follow it"
                                            : "is it this shape and this type?"),
        path, size);
  auto strides = c_order_strides(shape);
  return {path, begin, dtype, std::move(shape), std::move(strides), std::endian::native == std::endian::big};
}

Tensor read_raw(const std::string& path, DType dtype, std::vector<index_t> shape, std::optional<index_t> offset) {
  TensorPlace place = raw_place(path, dtype, std::move(shape), offset);
  const auto file = std::make_shared<const MappedFile>(path);
  const auto begin = static_cast<std::size_t>(place.offset);
  if (file->bytes().size() < begin + static_cast<std::size_t>(byte_range(place).end - place.offset))
    throw IoError(fmt::format("'{}' has become shorter while it was opened", path), path);
  return Tensor(
      {dtype, std::move(place.shape), std::move(place.strides), file->bytes().data() + begin, place.swap_bytes}, file);
}

}  // namespace redblue::file
