#include "redblue/files/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "redblue/language/error.hpp"

namespace redblue::file {

std::string printable(std::string_view text, bool ascii_only, std::size_t limit) {
  const bool cut = text.size() > limit;
  if (cut) {
    while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;  // no half UTF-8 character
    text = text.substr(0, limit);
  }
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte >= 0x20 && byte != 0x7f && (byte < 0x80 || !ascii_only);
    out += plain ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return cut ? out + "..." : out;
}

std::string text_of(std::span<const index_t> shape) {
  constexpr std::size_t kMost = 16;
  const std::string start = fmt::format("{}", fmt::join(shape.first(std::min(shape.size(), kMost)), ", "));
  return shape.size() <= kMost ? start : fmt::format("{}, ... {} dimensions", start, shape.size());
}

void throw_errno(std::string_view doing, const std::string& path, int errno_value) {
  std::string_view hint;
  if (errno_value == ENOSPC || errno_value == EDQUOT) hint = "; free some space or write to another disk";
  if (errno_value == EFBIG) hint = "; the limit on file sizes is lower (see ulimit -f)";
  throw IoError(fmt::format("cannot {} '{}': {}{}", doing, path, std::generic_category().message(errno_value), hint),
                path, -1, errno_value);
}

}  // namespace redblue::file
