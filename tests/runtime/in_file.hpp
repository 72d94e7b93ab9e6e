#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "redblue/files/io/file_map.hpp"
#include "redblue/language/names.hpp"
#include "runtime/filled.hpp"

namespace redblue::test {

/// A directory in memory, where there is one: these tests write and read back at once, and would wait for the disk.
inline std::string quick_directory() {
  return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path().string();
}

/// The arrays of a `Filled` in one file, one after the other. Their own memory is then made useless, so that whoever
/// reads there is found out.
class InFile {
 public:
  InFile(Filled& filled, file::io::PageCache cache) {
    index_t bytes = 0;
    for (auto& [a, array] : filled.arrays) bytes += std::ssize(array.memory()) + kBetween;
    file_ = std::make_shared<const file::io::OpenFile>(file::io::OpenFile::temporary(quick_directory(), bytes, cache));
    index_t offset = 0;
    for (auto& [a, array] : filled.arrays) {
      auto& memory = const_cast<std::vector<unsigned char>&>(array.memory());
      const index_t n = std::ssize(memory);
      EXPECT_EQ(pwrite(file_->cached_descriptor(), memory.data(), memory.size(), offset), n);
      std::ranges::fill(memory, kUseless);
      map.add(memory.data(), n, file_, offset);
      offset += n + kBetween;
    }
  }
  /// Puts the bytes of the file into the memory of the arrays, which nobody has touched.
  void read_back(Filled& filled) const {
    for (auto& [a, array] : filled.arrays) {
      auto& memory = const_cast<std::vector<unsigned char>&>(array.memory());
      EXPECT_TRUE(std::ranges::all_of(memory, [](unsigned char c) { return c == kUseless; })) << name_of(a);
      const auto place = map.find(memory.data());
      ASSERT_EQ(pread(file_->cached_descriptor(), memory.data(), memory.size(), place->offset), std::ssize(memory));
    }
  }

  file::io::FileMap map;

 private:
  static constexpr index_t kBetween = 24;
  static constexpr unsigned char kUseless = 0xFF;  // NaN, whatever the type
  std::shared_ptr<const file::io::OpenFile> file_;
};

}  // namespace redblue::test
