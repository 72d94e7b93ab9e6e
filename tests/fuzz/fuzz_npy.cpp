// clang++-19 -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I. \
//   -DFMT_HEADER_ONLY tests/fuzz/fuzz_npy.cpp redblue/files/*.cpp redblue/language/words.cpp -o fuzz_npy
// ./fuzz_npy -dict=tests/fuzz/npy.dict -max_total_time=600 NEW_FINDINGS tests/fuzz/corpus/npy
#include "targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  redblue::fuzz::accepts_npy(std::as_bytes(std::span(data, size)));
  return 0;
}
