#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <optional>

#include "redblue/files/io/open_file.hpp"

namespace redblue::file::io {

/// Says which byte of which file an address stands for. A tensor that lies in a file has such an address as its data,
/// so that shapes, strides and checks are those of tensors in memory. `place()` gives addresses that no processor maps:
/// who reads there by mistake is stopped at once. `add()` takes the addresses of a mapping that the caller has made, as
/// np.memmap does; bytes are then still read from the file.
class FileMap {
 public:
  struct Place {
    const OpenFile* file;
    index_t offset;  ///< byte of the file
    index_t bytes;   ///< from there on, that belong to the same range
  };

  /// Addresses for this range of a file, the first of which leaves the same remainder as `offset` when divided by a
  /// page.
  std::byte* place(std::shared_ptr<const OpenFile> file, index_t offset, index_t bytes);
  /// Throws InvalidProblem where a part of these addresses stands for something already.
  void add(const void* address, index_t bytes, std::shared_ptr<const OpenFile> file, index_t offset);
  /// Says where an address in a file is; it is empty for an address in memory.
  std::optional<Place> find(const void* address) const;

 private:
  struct Entry {
    std::shared_ptr<const OpenFile> file;
    index_t offset, bytes;
  };
  std::map<std::uintptr_t, Entry> entries_;  ///< by their first address
  std::uintptr_t next_ = kFirst;

  /// No user program has these addresses, on x86-64 (bits 47 to 63, or 56 to 63, would be alike) and on 64-bit Arm (bit
  /// 55 is the kernel's).
  static constexpr std::uintptr_t kFirst = (std::uintptr_t{1} << 62) | (std::uintptr_t{1} << 55);
};

}  // namespace redblue::file::io
