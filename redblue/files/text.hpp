#pragma once
#include <span>
#include <string>
#include <string_view>

#include "redblue/language/types.hpp"

namespace redblue::file {

/// Text from a file made fit for an error message: control characters (and, if asked, all that is not ASCII) as \xNN,
/// cut after `limit` bytes.
std::string printable(std::string_view text, bool ascii_only = false, std::size_t limit = 120);

/// "2, 3, 4"; of a shape too long to read, the start.
std::string text_of(std::span<const index_t> shape);

/// Throws IoError "cannot <doing> '<path>': <text of errno>", with a hint where one helps.
[[noreturn]] void throw_errno(std::string_view doing, const std::string& path, int errno_value);

}  // namespace redblue::file
