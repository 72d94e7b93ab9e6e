#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/targets.hpp"
#include "fuzz/trace_target.hpp"

// The fuzzers' corpora without a fuzzer: ok_* must be accepted, bad_* must be refused, fuzz_* are findings.
namespace redblue::fuzz {
namespace {

namespace fs = std::filesystem;

const fs::path kCorpus = fs::path(__FILE__).parent_path().parent_path() / "fuzz" / "corpus";

void check(const std::string& format, bool (*accepts)(std::span<const std::byte>)) {
  int files = 0;
  for (const auto& file : fs::directory_iterator(kCorpus / format)) {
    const std::string name = file.path().filename().string();
    SCOPED_TRACE(format + "/" + name);
    std::ifstream in(file.path(), std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
    const bool accepted = accepts(std::as_bytes(std::span(bytes)));
    EXPECT_TRUE(accepted || !name.starts_with("ok_"));
    EXPECT_FALSE(accepted && name.starts_with("bad_"));
    ++files;
  }
  EXPECT_GT(files, 50);
}

TEST(Corpus, NpyParserTakesWhatIsRightAndRefusesTheRest) { check("npy", accepts_npy); }
TEST(Corpus, SafetensorsParserTakesWhatIsRightAndRefusesTheRest) { check("safetensors", accepts_safetensors); }

TEST(Corpus, TracesThatAreRightRunAndOthersAreRefused) { check("trace", accepts_trace); }

}  // namespace
}  // namespace redblue::fuzz
