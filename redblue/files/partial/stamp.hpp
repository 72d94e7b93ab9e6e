#pragma once
#include <string>

namespace redblue::file::partial {

/// What shows that a file is the one that it was: its size, the time of its last change, and a checksum of its first
/// bytes, where formats have their headers. Throws IoError.
std::string stamp_of(const std::string& path);

}  // namespace redblue::file::partial
