#pragma once
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "redblue/files/tensor_file.hpp"
#include "redblue/language/error.hpp"

namespace redblue::file {

/// A directory of its own for each test, gone afterwards.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "redblue-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  /// How many files there are, hidden ones included.
  std::ptrdiff_t entries() const { return std::distance(std::filesystem::directory_iterator(path_), {}); }

 private:
  std::filesystem::path path_;
};

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// The bytes in a heap block of exactly their size, so that ASan sees a read past the end.
inline std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}

/// The message of the error that `run` must throw.
template <class E, class Run>
std::string message_of(Run&& run) {
  try {
    run();
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another type of error: " << e.what();
    return {};
  }
  ADD_FAILURE() << "no error";
  return {};
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
#define EXPECT_CONTAINS(text, part) EXPECT_TRUE(contains(text, part)) << (text)

/// All elements, row-major, as their bits.
inline std::vector<std::uint64_t> bits_of(const Tensor& t) {
  const auto width = size_of(t.dtype());
  std::vector<std::uint64_t> out;
  std::vector<index_t> at(t.shape().size(), 0);
  for (index_t i = 0; i < t.size(); ++i) {
    index_t offset = 0;
    for (std::size_t k = 0; k < at.size(); ++k) offset += at[k] * t.strides()[k];
    std::uint64_t bits = 0;
    std::memcpy(&bits, t.data() + static_cast<std::size_t>(offset) * width, width);
    out.push_back(bits);
    for (std::size_t k = at.size(); k-- > 0;) {
      if (++at[k] < t.shape()[k]) break;
      at[k] = 0;
    }
  }
  return out;
}

/// Bit patterns without any regularity, NaNs and infinities included: nothing may interpret them.
inline std::vector<std::byte> noise(std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  std::uint64_t state = 0x9e3779b97f4a7c15;
  for (auto& b : out) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    b = static_cast<std::byte>(state >> 56);
  }
  return out;
}

inline constexpr DType kAllTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

}  // namespace redblue::file
