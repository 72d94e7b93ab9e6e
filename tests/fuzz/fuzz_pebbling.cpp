// clang++-19 -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I. -Itests \
//   -DFMT_HEADER_ONLY tests/fuzz/fuzz_pebbling.cpp \
//   redblue/pebbling/{certificate,certificate_parse,dot,formula,graph,hdag,loose_nodes,referee,rules}.cpp \
//   redblue/files/{atomic_file,text}.cpp redblue/language/words.cpp -o fuzz_pebbling
// ./fuzz_pebbling -dict=tests/fuzz/pebbling.dict -max_total_time=600 NEW_FINDINGS tests/fuzz/corpus/pebbling
#include "pebbling_target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  redblue::fuzz::accepts_pebbling({reinterpret_cast<const char*>(data), size});
  return 0;
}
