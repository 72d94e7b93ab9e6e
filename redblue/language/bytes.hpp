#pragma once
#include <optional>
#include <string_view>

#include "redblue/language/words.hpp"

namespace redblue {

/// The bytes that a text says: "65536", "64KiB", "1.5MiB" (KiB MiB GiB TiB, KB MB GB TB, B); nothing where it says
/// none, or less than one.
std::optional<Words> bytes_from(std::string_view text);

inline constexpr std::string_view kBytesWanted =
    "give a number of bytes such as 65536, 64KiB or 1.5MiB (KiB MiB GiB TiB, KB MB GB TB)";

}  // namespace redblue
