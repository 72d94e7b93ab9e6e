#pragma once
#include <stdexcept>

#include "redblue/machines/files/file_queue.hpp"
#include "redblue/machines/ram/slow_side.hpp"

namespace redblue::machine {

/// The arrays of a problem whose addresses stand for bytes of files, and what moves these.
struct FileArrays {
  SlowMemory storage{};
  FileQueue* queue = nullptr;  ///< null: nothing is to be moved, only sizes are asked for

  Storage& operator[](std::size_t array) { return storage[array]; }
  const Storage& operator[](std::size_t array) const { return storage[array]; }
};

/// Arrays in files, of any element type and strides: all blocks pass through buffers.
template <class T>
class FileMemory {
 public:
  using Arrays = FileArrays;
  FileMemory(const FileArrays& arrays, const kernel::Implementations<T>& implementations)
      : arrays_(&arrays), implementations_(&implementations) {}

  static bool can_view(const Block&) { return false; }
  static View<T> view(const Block&) { throw std::logic_error("words in files cannot be viewed"); }
  static std::optional<DType> words16(const Block&) { return std::nullopt; }
  static Rows16 rows16(const Block&) { throw std::logic_error("words in files cannot be viewed"); }
  static bool is_int8(const Block&) { return false; }
  static Rows8 rows8(const Block&) { throw std::logic_error("words in files cannot be viewed"); }
  static void scales(const Block&, T*) { throw std::logic_error("words in files are fetched with their scales"); }

  /// Copies a block to rows of leading dimension ld.
  void fetch(const Block& b, T* to, index_t ld) const {
    arrays_->queue->read(storage(b), b, [&](const Piece& p, const Storage& words) {
      gather(words, p.block, to + p.row * ld + p.col, ld * p.row_step, implementations_->row_conversion);
    });
  }
  void put(const Block& b, const View<const T>& from) const {
    arrays_->queue->write(storage(b), b, [&](const Piece& p, const Storage& words) {
      const View<const T> part = part_of(from, p);
      scatter(words, p.block, part.data, part.row_stride, part.col_stride, implementations_->row_conversion);
    });
  }
  void add(const Block& b, const View<const T>& from) const {
    arrays_->queue->add(storage(b), b,
                        [&](const Piece& p, const Storage& words) { add_to(words, p.block, part_of(from, p)); });
  }

 private:
  const Storage& storage(const Block& b) const { return (*arrays_)[index_of(b.array)]; }
  static View<const T> part_of(const View<const T>& from, const Piece& p) {
    return {from.data + p.row * from.row_stride + p.col * from.col_stride, p.block.shape, from.row_stride * p.row_step,
            from.col_stride};
  }

  const FileArrays* arrays_;
  const kernel::Implementations<T>* implementations_;
};
static_assert(SlowSide<FileMemory<float>, float>);

}  // namespace redblue::machine
