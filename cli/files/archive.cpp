#include "files/archive.hpp"

#include <fmt/format.h>

#include <cctype>

namespace redblue::cli {

std::string readable(const std::string& name) {
  std::string text;
  for (const char c : name)
    text += std::iscntrl(static_cast<unsigned char>(c)) != 0 ? fmt::format("\\x{:02x}", static_cast<unsigned char>(c))
                                                             : std::string(1, c);
  return text;
}

}  // namespace redblue::cli
