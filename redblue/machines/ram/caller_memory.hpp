#pragma once
#include <algorithm>

#include "redblue/language/view.hpp"
#include "redblue/machines/ram/slow_side.hpp"
#include "redblue/machines/ram/storage.hpp"

namespace redblue::machine {

/// Arrays in the caller's memory, of any element type and strides.
template <class T>
class CallerMemory {
 public:
  using Arrays = SlowMemory;
  CallerMemory(const SlowMemory& arrays, const kernel::Implementations<T>& implementations)
      : arrays_(&arrays), implementations_(&implementations) {}

  /// Fast implementations want the words of a row side by side.
  bool can_view(const Block& b) const {
    const Storage& s = storage(b);
    return s.dtype == kDTypeOf<T> && (s.plain_rows() || (implementations_->panel == 0 && s.uniform_rows()));
  }
  View<T> view(const Block& b) const {
    const Storage& s = storage(b);
    return {reinterpret_cast<T*>(s.data) + s.offset(b.instance, b.row, b.col), b.shape, s.uniform_row_stride(),
            s.col_stride};
  }
  std::optional<DType> words16(const Block& b) const {
    const Storage& s = storage(b);
    return size_of(s.dtype) == 2 && s.plain_rows() ? std::optional(s.dtype) : std::nullopt;
  }
  Rows16 rows16(const Block& b) const {
    const Storage& s = storage(b);
    return {reinterpret_cast<const std::uint16_t*>(s.data) + s.offset(b.instance, b.row, b.col),
            s.uniform_row_stride()};
  }
  bool is_int8(const Block& b) const { return storage(b).dtype == DType::int8 && storage(b).plain_rows(); }
  Rows8 rows8(const Block& b) const {
    const Storage& s = storage(b);
    return {reinterpret_cast<const std::int8_t*>(s.data) + s.offset(b.instance, b.row, b.col), s.uniform_row_stride()};
  }
  void scales(const Block& b, T* to) const {
    const Storage& s = storage(b);
    const index_t keys = s.scales.keys;
    for (index_t i = 0, alike = 0; i < b.shape.rows; i += alike) {
      alike = b.shape.rows - i;
      if (keys > 0) alike = std::min(alike, keys - (b.row + i) % keys);
      std::fill_n(to + i, alike, static_cast<T>(s.scale(b.instance, b.row + i)));
    }
  }
  /// Copies a block to rows of leading dimension ld.
  void fetch(const Block& b, T* to, index_t ld) const {
    gather(storage(b), b, to, ld, implementations_->row_conversion);
  }
  void put(const Block& b, const View<const T>& from) const {
    scatter(storage(b), b, from.data, from.row_stride, from.col_stride, implementations_->row_conversion);
  }
  void add(const Block& b, const View<const T>& from) const { add_to(storage(b), b, from); }

 private:
  const Storage& storage(const Block& b) const { return (*arrays_)[index_of(b.array)]; }

  const SlowMemory* arrays_;
  const kernel::Implementations<T>* implementations_;
};
static_assert(SlowSide<CallerMemory<float>, float>);

}  // namespace redblue::machine
