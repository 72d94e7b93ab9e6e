#include "support/paths.hpp"

namespace redblue::test {

std::string in_sources(const std::string& path) { return REDBLUE_SOURCE_DIR + path; }
std::string program() { return REDBLUE_CLI; }

}  // namespace redblue::test
