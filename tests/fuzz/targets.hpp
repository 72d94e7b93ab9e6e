#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "redblue/files/npy.hpp"
#include "redblue/files/safetensors.hpp"
#include "redblue/language/error.hpp"

// What the fuzzers run, and tests/files/corpus_test.cpp over the corpus: parse, and read every byte of whatever the
// parser accepted, so that a shape, stride or offset that is wrong shows as a read out of bounds.
namespace redblue::fuzz {

/// Reads every element through the strides; returns a checksum so that no read is optimised away.
inline std::uint64_t touch(const file::Tensor& t) {
  const auto width = static_cast<index_t>(size_of(t.dtype()));
  std::vector<index_t> at(t.shape().size(), 0);
  std::uint64_t sum = 0;
  for (index_t i = 0; i < t.size(); ++i) {
    index_t offset = 0;
    for (std::size_t k = 0; k < at.size(); ++k) offset += at[k] * t.strides()[k];
    for (index_t b = 0; b < width; ++b) sum = sum * 31 + std::to_integer<std::uint64_t>(t.data()[offset * width + b]);
    for (std::size_t k = at.size(); k-- > 0;) {
      if (++at[k] < t.shape()[k]) break;
      at[k] = 0;
    }
  }
  return sum;
}

inline std::uint64_t sum_of(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  for (const std::byte b : bytes) sum = sum * 31 + std::to_integer<std::uint64_t>(b);
  return sum;
}

/// True if the bytes are an .npy file. Throws nothing, whatever the bytes.
inline bool accepts_npy(std::span<const std::byte> bytes) {
  try {
    const file::Tensor t(file::parse_npy(bytes), nullptr);
    [[maybe_unused]] volatile std::uint64_t sum = touch(t);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// True if the bytes are a safetensors file. Throws nothing, whatever the bytes.
inline bool accepts_safetensors(std::span<const std::byte> bytes) {
  try {
    const file::Safetensors s = file::parse_safetensors(bytes);
    for (const auto& name : s.names()) {
      [[maybe_unused]] volatile std::uint64_t sum = sum_of(s.entry(name).bytes);
      try {
        sum = touch(s.tensor(name));
      } catch (const Unsupported&) {  // an integer tensor leaves the others readable
      }
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace redblue::fuzz
