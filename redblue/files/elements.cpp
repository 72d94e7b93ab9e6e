#include "redblue/files/elements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"

namespace redblue::file {

void check_writable(const FileTensor& tensor, const std::string& what) {
  const auto count = element_count(tensor.shape, static_cast<index_t>(size_of(tensor.dtype)));
  if (!count)
    throw InvalidProblem(fmt::format("cannot write {}: shape [{}] is negative or its size overflows 63 bits", what,
                                     text_of(tensor.shape)));
  if (tensor.strides.size() != tensor.shape.size())
    throw InvalidProblem(
        fmt::format("cannot write {}: {} strides for {} dimensions", what, tensor.strides.size(), tensor.shape.size()));
  if (*count != 0 && tensor.data == nullptr) throw InvalidProblem(fmt::format("cannot write {}: it has no data", what));
}

void write_elements(AtomicFile& out, const FileTensor& tensor) {
  const index_t size = tensor.size();
  if (size == 0) return;
  const auto width = static_cast<index_t>(size_of(tensor.dtype));
  const bool little_endian = (std::endian::native == std::endian::little) != tensor.swap_bytes;
  if (little_endian && tensor.strides == c_order_strides(tensor.shape)) {
    out.write({tensor.data, static_cast<std::size_t>(size * width)});
    return;
  }
  constexpr std::size_t kChunkBytes = 1 << 16;  // large enough that the system call costs nothing
  std::vector<std::byte> chunk;
  chunk.reserve(kChunkBytes);
  std::vector<index_t> at(tensor.shape.size(), 0);
  index_t offset = 0;  // of element `at`
  for (index_t i = 0; i < size; ++i) {
    const std::byte* element = tensor.data + offset * width;
    if (chunk.size() + static_cast<std::size_t>(width) > kChunkBytes) {
      out.write(chunk);
      chunk.clear();
    }
    chunk.insert(chunk.end(), element, element + width);
    if (!little_endian) std::reverse(chunk.end() - width, chunk.end());
    for (std::size_t k = at.size(); k-- > 0;) {  // the next index, last dimension fastest
      offset += tensor.strides[k];
      if (++at[k] < tensor.shape[k]) break;
      offset -= at[k] * tensor.strides[k];
      at[k] = 0;
    }
  }
  out.write(chunk);
}

}  // namespace redblue::file
