// clang++-19 -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I. \
//   -isystem /usr/include/eigen3 -DFMT_HEADER_ONLY tests/fuzz/fuzz_trace.cpp \
//   redblue/machines/{trace,trace_check}.cpp redblue/machines/ram/{storage,team}.cpp redblue/language/words.cpp -o fuzz_trace
// ./fuzz_trace -dict=tests/fuzz/trace.dict -max_total_time=600 NEW_FINDINGS tests/fuzz/corpus/trace
#include "trace_target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  redblue::fuzz::accepts_trace(std::as_bytes(std::span(data, size)));
  return 0;
}
