#pragma once
#include <string>

/// Where things are: the only file of the tests that is compiled anew in another folder is paths.cpp.
namespace redblue::test {

/// A file of the repository, by its path from the top: "/tests/data/hardware.json".
std::string in_sources(const std::string& path);
/// The program redblue of this build.
std::string program();

}  // namespace redblue::test
