#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "redblue/files/partial/descriptor.hpp"

namespace redblue::file::partial {

/// What stood in files before it was written over: a record for each block, with checksums, appended to one file.
/// Records belong to a checkpoint, which is a number; once there is a later one they mean nothing.
class UndoLog {
 public:
  explicit UndoLog(std::string path) : file_(std::move(path)) {}

  /// Appends a record. It may get lost until make_durable().
  void keep(index_t checkpoint, index_t file, index_t offset, std::span<const std::byte> bytes);
  void make_durable() const;
  /// Calls put_back(file, offset, bytes) for the records of this checkpoint, in their order. It ends at the first one
  /// that is not whole: what it was to keep has not been written over.
  void roll_back(index_t checkpoint, const std::function<void(index_t, index_t, std::span<const std::byte>)>& put_back);
  /// Removes all records.
  void clear();

 private:
  Descriptor file_;
  index_t end_ = 0;
};

}  // namespace redblue::file::partial
