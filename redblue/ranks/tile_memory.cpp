#include "redblue/ranks/tile_memory.hpp"

#include <cstring>

#include "redblue/machines/ram/storage.hpp"
#include "redblue/runtime/storage_of.hpp"

namespace redblue::ranks {
namespace {

/// Has a tile of it the type of the arithmetic, whatever the caller's tensor has?
bool is_of_arithmetic(SlowArray a) {
  using enum SlowArray;
  return a != Q && a != K && a != V && a != dO && a != bias;
}

/// f(bytes of the tile, bytes of them side by side) for all of a piece, in the order in which it travels.
template <class F>
void for_rows(const Tensor& t, const F& f) {
  const auto word = static_cast<index_t>(size_of(t.dtype));
  const auto& [batch, heads, rows, cols] = t.shape;
  auto* const data = static_cast<std::byte*>(t.data);
  const bool rows_together = t.strides[3] == 1 && t.strides[2] == cols;
  for (index_t b = 0; b < batch; ++b)
    for (index_t h = 0; h < heads; ++h) {
      std::byte* const head = data + (b * t.strides[0] + h * t.strides[1]) * word;
      if (rows_together) {
        f(head, static_cast<std::size_t>(rows * cols * word));
        continue;
      }
      for (index_t r = 0; r < rows; ++r) {
        std::byte* const row = head + r * t.strides[2] * word;
        if (t.strides[3] == 1)
          f(row, static_cast<std::size_t>(cols * word));
        else
          for (index_t c = 0; c < cols; ++c) f(row + c * t.strides[3] * word, static_cast<std::size_t>(word));
      }
    }
}

template <class T>
void round_into(const Tensor& from, const Tensor& to) {
  const auto& [batch, heads, rows, cols] = to.shape;
  const machine::Storage target = storage_of(to, heads, 1, true);
  const auto* words = static_cast<const T*>(from.data);
  for (index_t i = 0; i < batch * heads; ++i, words += rows * cols)
    machine::scatter<T>(target, {SlowArray::O, i, 0, 0, {rows, cols}}, words, cols, 1);
}

template <class T>
void widen_into(const Tensor& from, const Tensor& to) {
  const auto& [batch, heads, rows, cols] = to.shape;
  const machine::Storage source = storage_of(from, heads, 1, false);
  auto* words = static_cast<T*>(to.data);
  for (index_t i = 0; i < batch * heads; ++i, words += rows * cols)
    machine::gather<T>(source, {SlowArray::O, i, 0, 0, {rows, cols}}, words, cols);
}

}  // namespace

TileMemory::TileMemory(const World& world, const Program& program, const Tensors& home, Kept* kept, DType compute)
    : world_(world),
      program_(program),
      home_(home),
      kept_(kept),
      compute_(compute),
      tensors_(program.tiles.size()),
      memory_(program.tiles.size()),
      comes_(program.steps.size()),
      goes_(program.steps.size()) {
  const std::vector<Lifetime> lives = lifetimes_of(program);
  for (std::size_t t = 0; t < program.tiles.size(); ++t) {
    const Tile& tile = program.tiles[t];
    if (tile.home) {
      const Tensor& given = home[tile.array];
      const bool typed = tile.array != SlowArray::O || is_forward(world.problem().op);
      tensors_[t] = given;
      if (is_of_arithmetic(tile.array) && typed && (given.dtype != compute || given.data == nullptr)) begin_home(t);
    } else if (tile.kept && !is_forward(world.problem().op)) {
      tensors_[t] = *kept->find(tile.array);
    } else if (lives[t].first != Lifetime::kNever) {
      comes_[lives[t].first].push_back(t);
      if (!tile.kept) goes_[lives[t].last].push_back(t);
    }
  }
}

/// A home tile in the type of the arithmetic: of an output, or of a given lse.
void TileMemory::begin_home(std::size_t t) {
  const Tile& tile = program_.tiles[t];
  hold(t);
  if (tile.array != SlowArray::lse || is_forward(world_.problem().op)) return;
  if (compute_ == DType::f64)
    widen_into<double>(home_[tile.array], tensors_[t]);
  else
    widen_into<float>(home_[tile.array], tensors_[t]);
}

void TileMemory::hold(std::size_t t) {
  const Tile& tile = program_.tiles[t];
  const DType type = dtype_of(static_cast<int>(t));
  const std::array<index_t, 4> shape{batches_of(world_.problem(), tile.array), tile.heads.size(), tile.rows.count(),
                                     tile.cols.empty() ? cols_of(world_.problem(), tile.array) : tile.cols.count()};
  memory_[t].resize(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]) * size_of(type));
  tensors_[t] = Tensor(memory_[t].data(), type, shape);
  bytes_ += memory_[t].size();
  most_bytes_ = std::max(most_bytes_, bytes_);
}

void TileMemory::begin_step(std::size_t step) {
  for (const std::size_t t : comes_[step])
    if (memory_[t].empty()) hold(t);
}

void TileMemory::end_step(std::size_t step) {
  for (const std::size_t t : goes_[step]) {
    bytes_ -= memory_[t].size();
    std::vector<std::byte>().swap(memory_[t]);
  }
}

void TileMemory::finish() {
  for (std::size_t t = 0; t < program_.tiles.size(); ++t) {
    const Tile& tile = program_.tiles[t];
    if (tile.kept && is_forward(world_.problem().op)) {
      if (memory_[t].empty()) hold(t);  // it has no rows
      kept_->keep(tile.array, std::move(memory_[t]), tensors_[t]);
    }
    const bool output = tile.array != SlowArray::lse || is_forward(world_.problem().op);
    if (!tile.home || !output || memory_[t].empty() || home_[tile.array].data == nullptr) continue;
    if (compute_ == DType::f64)
      round_into<double>(tensors_[t], home_[tile.array]);
    else
      round_into<float>(tensors_[t], home_[tile.array]);
  }
}

DType TileMemory::dtype_of(int tile) const {
  const SlowArray a = program_.tiles[static_cast<std::size_t>(tile)].array;
  return is_of_arithmetic(a) ? compute_ : home_[a].dtype;
}

Tensor TileMemory::tensor(int tile) const { return tensors_[static_cast<std::size_t>(tile)]; }

Tensor TileMemory::tensor(int tile, Range rows, Range heads, std::optional<Range> cols) const {
  const Tile& all = program_.tiles[static_cast<std::size_t>(tile)];
  Tensor t = tensor(tile);
  index_t offset = (heads.begin - all.heads.begin) * t.strides[1] + all.rows.place_of(rows.begin) * t.strides[2];
  if (cols) {
    offset += (all.cols.empty() ? cols->begin : all.cols.place_of(cols->begin)) * t.strides[3];
    t.shape[3] = cols->size();
  }
  if (t.data != nullptr) t.data = static_cast<std::byte*>(t.data) + offset * static_cast<index_t>(size_of(t.dtype));
  t.shape[1] = heads.size();
  t.shape[2] = rows.size();
  return t;
}

std::size_t TileMemory::bytes_of(const std::vector<Piece>& pieces) const {
  std::size_t bytes = 0;
  for (const Piece& p : pieces) {
    const Words words =
        words_of(world_.problem(), program_.tiles[static_cast<std::size_t>(p.tile)].array, p.rows, p.heads, p.cols);
    bytes += static_cast<std::size_t>(words.to_index()) * size_of(dtype_of(p.tile));
  }
  return bytes;
}

std::vector<Tensor> TileMemory::tensors(const Piece& p) const {
  std::vector<Tensor> list;
  list.reserve(p.rows.ranges().size() * std::max<std::size_t>(1, p.cols.ranges().size()));
  for (const Range& rows : p.rows.ranges()) {
    if (p.cols.empty()) list.push_back(tensor(p.tile, rows, p.heads));
    for (const Range& cols : p.cols.ranges()) list.push_back(tensor(p.tile, rows, p.heads, cols));
  }
  return list;
}

void TileMemory::pack(const std::vector<Piece>& pieces, std::byte* to) const {
  for (const Piece& p : pieces)
    for (const Tensor& t : tensors(p))
      for_rows(t, [&](const std::byte* bytes, std::size_t size) {
        std::memcpy(to, bytes, size);
        to += size;
      });
}

void TileMemory::unpack(const std::vector<Piece>& pieces, const std::byte* from) const {
  for (const Piece& p : pieces)
    for (const Tensor& t : tensors(p))
      for_rows(t, [&](std::byte* bytes, std::size_t size) {
        std::memcpy(bytes, from, size);
        from += size;
      });
}

}  // namespace redblue::ranks
