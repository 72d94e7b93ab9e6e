#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "fuzz/pebbling_target.hpp"

// The fuzzer's corpus without a fuzzer: ok_* must be accepted, bad_* must be refused, fuzz_* are findings.
namespace redblue::fuzz {
namespace {

namespace fs = std::filesystem;

TEST(Corpus, graphs_and_certificates_that_are_right_are_read_and_others_refused) {
  int files = 0;
  for (const auto& file :
       fs::directory_iterator(fs::path(__FILE__).parent_path().parent_path() / "fuzz/corpus/pebbling")) {
    const std::string name = file.path().filename().string();
    SCOPED_TRACE(name);
    std::ifstream in(file.path(), std::ios::binary);
    const bool accepted = accepts_pebbling(std::string(std::istreambuf_iterator<char>(in), {}));
    EXPECT_TRUE(accepted || !name.starts_with("ok_"));
    EXPECT_FALSE(accepted && name.starts_with("bad_"));
    ++files;
  }
  EXPECT_GE(files, 10);
}

}  // namespace
}  // namespace redblue::fuzz
