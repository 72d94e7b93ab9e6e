#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "redblue/language/types.hpp"

namespace redblue::file::partial {

/// A number that bytes have and others most likely do not. It is the same in all programs that one standard library
/// was compiled into (state.hpp writes down what it makes of a known text).
inline std::uint64_t checksum(std::span<const std::byte> bytes) {
  return std::hash<std::string_view>{}({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

/// A file cut into blocks of one size, and what a run has done with each since the last checkpoint: a block that was
/// written before it holds words that a resumed run may read, so they must be kept before they are written over.
class Blocks {
 public:
  enum class Written : std::uint8_t { never, before, since };  ///< the last checkpoint

  Blocks(index_t bytes, index_t block_bytes)
      : bytes_(bytes),
        block_bytes_(block_bytes),
        written_(static_cast<std::size_t>(ceil_div(bytes, block_bytes)), Written::never),
        checksums_(written_.size()) {}

  index_t count() const { return std::ssize(written_); }
  index_t offset(index_t block) const { return block * block_bytes_; }
  index_t bytes(index_t block) const { return std::min(block_bytes_, bytes_ - offset(block)); }
  Written written(index_t block) const { return written_[at(block)]; }
  std::uint64_t checksum_of(index_t block) const { return checksums_[at(block)]; }  ///< where it was written before

  /// These bytes will be written. Calls keep(block) for each block of them that was written before.
  template <class Keep>
  void write(index_t offset, index_t bytes, const Keep& keep) {
    if (bytes == 0) return;
    for (index_t b = offset / block_bytes_; b <= (offset + bytes - 1) / block_bytes_; ++b) {
      if (written(b) == Written::before) keep(b);
      written_[at(b)] = Written::since;
    }
  }
  /// All that was written is now written before the last checkpoint. Calls checksum(block) for what is new.
  template <class Checksum>
  void checkpoint(const Checksum& checksum) {
    for (index_t b = 0; b < count(); ++b)
      if (written(b) == Written::since) restore(b, checksum(b));
  }
  /// This block was written before, and had this checksum.
  void restore(index_t block, std::uint64_t checksum) {
    checksums_[at(block)] = checksum;
    written_[at(block)] = Written::before;
  }

 private:
  static std::size_t at(index_t block) { return static_cast<std::size_t>(block); }

  index_t bytes_, block_bytes_;
  std::vector<Written> written_;
  std::vector<std::uint64_t> checksums_;
};

}  // namespace redblue::file::partial
