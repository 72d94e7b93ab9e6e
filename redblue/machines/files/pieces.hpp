#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>

#include "redblue/files/io/open_file.hpp"
#include "redblue/machines/ram/storage.hpp"

/// Blocks cut into what one request moves.
namespace redblue::machine {

/// A part of a block, and the addresses that it takes from its first word to its last.
struct Piece {
  Storage storage;           ///< where the rows of `block` lie at one stride
  Block block{};             ///< the same words, as rows of `storage`
  index_t row = 0;           ///< of the whole block, that is its first one
  index_t row_step = 1;      ///< from one row of it to the next in the whole block
  index_t col = 0;           ///< of the whole block, that is its first one
  std::uintptr_t first = 0;  ///< address
  index_t bytes = 0;         ///< from there to the end of its last word

  index_t words() const { return block.shape.words(); }
  index_t width() const { return static_cast<index_t>(size_of(storage.dtype)); }  ///< of a word in bytes
  /// Are all bytes between its first and its last word of its words?
  bool is_whole() const { return bytes <= words() * width(); }
  /// The same words where the byte of address `first` has been copied to, or shall be.
  Storage at(std::byte* copy) const {
    Storage s = storage;
    s.data = std::bit_cast<std::byte*>(std::bit_cast<std::uintptr_t>(s.data) +
                                       (std::bit_cast<std::uintptr_t>(copy) - first));
    return s;
  }
};

/// Is it all of its block?
inline bool is_alone(const Piece& p, const Block& b) { return p.words() == b.shape.words(); }
/// May its pages serve other blocks, too? Not those of rows that lie together, a whole block or a page at least: each
/// word that a plan counts moves then, however often.
inline bool shares_pages(const Piece& p, const Block& b) {
  return !p.is_whole() || (!is_alone(p, b) && p.bytes < file::io::kPage);
}

/// How pieces are cut: none takes more than `most` bytes, unless it is one word, and none has a gap of more than
/// `gap` bytes between neighbouring rows or words.
struct Cut {
  index_t most;
  index_t gap;
};

namespace detail {

/// Some of the rows of a block, all at one stride, in pieces.
template <class Visit>
void cut_rows(const Piece& rows, const Cut& cut, const Visit& visit) {
  const auto width = static_cast<index_t>(size_of(rows.storage.dtype));
  const index_t row_bytes = rows.storage.row_stride * width, col_bytes = rows.storage.col_stride * width;
  const Shape shape = rows.block.shape;
  const bool by_rows = std::abs(row_bytes) >= std::abs(col_bytes);  // the outer loop goes over rows
  const index_t outer = by_rows ? shape.rows : shape.cols, inner = by_rows ? shape.cols : shape.rows;
  const index_t outer_step = std::abs(by_rows ? row_bytes : col_bytes);
  const index_t inner_step = std::abs(by_rows ? col_bytes : row_bytes);
  // As many as `limit` bytes hold, each `size` bytes and `step` from the one before it.
  const auto as_many = [&](index_t n, index_t step, index_t size) {
    if (step - size > cut.gap || size > cut.most) return index_t{1};
    return step == 0 ? n : std::clamp<index_t>((cut.most - size) / step + 1, 1, n);
  };
  const index_t inner_at_once = as_many(inner, inner_step, width);
  const index_t inner_size = (inner_at_once - 1) * inner_step + width;
  const index_t outer_at_once = inner_at_once < inner ? 1 : as_many(outer, outer_step, inner_size);
  for (index_t o = 0; o < outer; o += outer_at_once)
    for (index_t i = 0; i < inner; i += inner_at_once) {
      const index_t o_here = std::min(outer_at_once, outer - o), i_here = std::min(inner_at_once, inner - i);
      Piece p = rows;
      const index_t r = by_rows ? o : i, c = by_rows ? i : o;
      p.block.row += r;
      p.block.col += c;
      p.block.shape = by_rows ? Shape{o_here, i_here} : Shape{i_here, o_here};
      p.row += r * rows.row_step;
      p.col += c;
      index_t first = p.storage.offset(p.block.instance, p.block.row, p.block.col) * width;
      if (row_bytes < 0) first += (p.block.shape.rows - 1) * row_bytes;
      if (col_bytes < 0) first += (p.block.shape.cols - 1) * col_bytes;
      p.first = std::bit_cast<std::uintptr_t>(p.storage.data) + static_cast<std::uintptr_t>(first);
      p.bytes = (o_here - 1) * outer_step + (i_here - 1) * inner_step + width;
      visit(p);
    }
}

}  // namespace detail

/// Calls visit(piece) for the pieces of a block, which depend on nothing but what is given.
template <class Visit>
void for_pieces(const Storage& s, const Block& b, const Cut& cut, const Visit& visit) {
  if (b.shape.words() == 0) return;
  Piece rows{s, b};
  rows.storage.group = 1;
  if (s.uniform_rows()) {
    rows.storage.row_stride = s.uniform_row_stride();
    return detail::cut_rows(rows, cut, visit);
  }
  // The query heads of a group take turns: the rows of each lie at one stride.
  for (index_t k = 0; k < std::min(s.group, b.shape.rows); ++k) {
    const index_t row = b.row + k, head = row % s.group;
    Piece of_head = rows;
    of_head.storage.data += head * s.head_stride * static_cast<index_t>(size_of(s.dtype));
    of_head.block.row = row / s.group;
    of_head.block.shape.rows = ceil_div(b.shape.rows - k, s.group);
    of_head.row = k;
    of_head.row_step = s.group;
    detail::cut_rows(of_head, cut, visit);
  }
}

}  // namespace redblue::machine
