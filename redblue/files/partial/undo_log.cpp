#include "redblue/files/partial/undo_log.hpp"

#include <array>
#include <cstring>
#include <vector>

#include "redblue/files/partial/blocks.hpp"

namespace redblue::file::partial {

namespace {

/// Stands before the bytes of a record.
struct Head {
  std::int64_t checkpoint, file, offset, bytes;
  std::uint64_t checksum;       ///< of the bytes
  std::uint64_t head_checksum;  ///< of all before it

  std::uint64_t own_checksum() const {
    std::array<std::byte, sizeof(Head)> copy;
    std::memcpy(copy.data(), this, sizeof(Head));
    return partial::checksum(std::span(copy).first(offsetof(Head, head_checksum)));
  }
};

}  // namespace

void UndoLog::keep(index_t checkpoint, index_t file, index_t offset, std::span<const std::byte> bytes) {
  Head head{checkpoint, file, offset, std::ssize(bytes), checksum(bytes), 0};
  head.head_checksum = head.own_checksum();
  write_at(file_.number(), file_.path(), end_, std::as_bytes(std::span(&head, 1)));
  write_at(file_.number(), file_.path(), end_ + static_cast<index_t>(sizeof(Head)), bytes);
  end_ += static_cast<index_t>(sizeof(Head)) + std::ssize(bytes);
}

void UndoLog::make_durable() const {
  file_.make_durable();
  give_back_pages(file_.number(), 0, 0);
}

void UndoLog::roll_back(index_t checkpoint,
                        const std::function<void(index_t, index_t, std::span<const std::byte>)>& put_back) {
  const index_t size = file_.size();
  std::vector<std::byte> bytes;
  for (index_t at = 0;;) {
    Head head{};
    if (read_at(file_.number(), file_.path(), at, std::as_writable_bytes(std::span(&head, 1))) != sizeof(Head)) return;
    at += static_cast<index_t>(sizeof(Head));
    if (head.head_checksum != head.own_checksum() || head.checkpoint != checkpoint || head.bytes > size - at) return;
    bytes.resize(static_cast<std::size_t>(head.bytes));
    if (read_at(file_.number(), file_.path(), at, bytes) != head.bytes || checksum(bytes) != head.checksum) return;
    at += head.bytes;
    put_back(head.file, head.offset, bytes);
  }
}

void UndoLog::clear() {
  file_.cut(0);
  end_ = 0;
}

}  // namespace redblue::file::partial
