#include "redblue/files/io/ring.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include "redblue/language/error.hpp"

namespace redblue::file::io {

Ring::Ring(index_t bytes) : size_(up_to_page(bytes)) {
  void* const memory =
      mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw MemoryError(fmt::format("the system gives no {} bytes for buffers of files: choose smaller ones", size_),
                      size_, 0);
  memory_ = static_cast<std::byte*>(memory);
}

Ring::~Ring() { munmap(memory_, static_cast<std::size_t>(size_)); }

Ring::Space Ring::take(index_t bytes) {
  bytes = up_to_page(bytes);
  if (head_ == tail_) head_ = tail_ = (head_ + size_ - 1) / size_ * size_;  // from the beginning
  const index_t at = head_ % size_;
  const index_t begin = at + bytes > size_ ? head_ + (size_ - at) : head_;
  if (begin + bytes - tail_ > size_) return {};
  head_ = begin + bytes;
  return {memory_ + begin % size_, begin, head_};
}

void Ring::cut(Space& space, index_t bytes) {
  if (space.end != head_) return;
  head_ = space.end = space.begin + up_to_page(bytes);
}

void Ring::give_back(index_t end) { tail_ = end; }

}  // namespace redblue::file::io
