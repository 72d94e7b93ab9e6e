#include "redblue/files/io/file_map.hpp"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "redblue/language/error.hpp"

namespace redblue::file::io {

std::byte* FileMap::place(std::shared_ptr<const OpenFile> file, index_t offset, index_t bytes) {
  const std::uintptr_t first = next_ + static_cast<std::uintptr_t>(offset % kPage);
  next_ = (first + static_cast<std::uintptr_t>(bytes) + 2 * kPage - 1) / kPage * kPage;  // and a gap of a page
  auto* const address = std::bit_cast<std::byte*>(first);
  add(address, bytes, std::move(file), offset);
  return address;
}

void FileMap::add(const void* address, index_t bytes, std::shared_ptr<const OpenFile> file, index_t offset) {
  const auto first = std::bit_cast<std::uintptr_t>(address);
  const auto next = entries_.lower_bound(first);
  const bool before = next != entries_.begin() &&
                      std::prev(next)->first + static_cast<std::uintptr_t>(std::prev(next)->second.bytes) > first;
  if (before || (next != entries_.end() && next->first < first + static_cast<std::uintptr_t>(bytes)))
    throw InvalidProblem(
        fmt::format("the {} bytes of '{}' from {} on are mapped to addresses of which some stand for "
                    "bytes of a file already: name each range of addresses once",
                    bytes, file->path(), offset));
  if (offset < 0 || bytes < 0 || offset + bytes > file->size())
    throw InvalidProblem(fmt::format("'{}' has {} bytes, and {} bytes from {} on were asked for", file->path(),
                                     file->size(), bytes, offset));
  if (bytes > 0) entries_.emplace(first, Entry{std::move(file), offset, bytes});
}

std::optional<FileMap::Place> FileMap::find(const void* address) const {
  const auto at = std::bit_cast<std::uintptr_t>(address);
  auto entry = entries_.upper_bound(at);
  if (entry == entries_.begin()) return std::nullopt;
  --entry;
  const auto inside = static_cast<index_t>(at - entry->first);
  if (inside >= entry->second.bytes) return std::nullopt;
  return Place{entry->second.file.get(), entry->second.offset + inside, entry->second.bytes - inside};
}

}  // namespace redblue::file::io
