#pragma once
#include <optional>
#include <vector>

#include "redblue/ranks/kept.hpp"
#include "redblue/ranks/steps.hpp"
#include "redblue/runtime/run.hpp"

/// Where the tiles of a rank lie: in the caller's tensors, or in memory that the rank holds while it needs them.
namespace redblue::ranks {

class TileMemory {
 public:
  /// Home tiles lie in `home`, or, where an output has another type than the arithmetic, in memory of that type until
  /// the end. Tiles that a forward pass keeps go to `kept` at the end, and a gradient has them there.
  TileMemory(const World& world, const Program& program, const Tensors& home, Kept* kept, DType compute);

  /// Memory of tiles comes with the first step that names them, and goes with the last.
  void begin_step(std::size_t step);
  void end_step(std::size_t step);
  /// Outputs that were held in the type of the arithmetic are rounded into the caller's, and tiles are kept.
  void finish();

  /// All rows and heads of a tile; one range of its rows, with some of its heads, and of its columns.
  Tensor tensor(int tile) const;
  Tensor tensor(int tile, Range rows, Range heads, std::optional<Range> cols = {}) const;
  /// A piece, by ranges of its rows and columns, in the order in which they travel.
  std::vector<Tensor> tensors(const Piece& piece) const;

  /// Its type, also while it is not here.
  DType dtype_of(int tile) const;

  /// Bytes of pieces as they travel, the pieces one after the other, each as [batch, heads, rows, features].
  std::size_t bytes_of(const std::vector<Piece>& pieces) const;
  void pack(const std::vector<Piece>& pieces, std::byte* to) const;
  void unpack(const std::vector<Piece>& pieces, const std::byte* from) const;

  std::size_t most_bytes() const { return most_bytes_; }

 private:
  void hold(std::size_t tile);
  void begin_home(std::size_t tile);

  const World& world_;
  const Program& program_;
  const Tensors& home_;
  Kept* const kept_;
  DType compute_;
  std::vector<Tensor> tensors_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::vector<std::size_t>> comes_, goes_;  ///< tiles, by step
  std::size_t bytes_ = 0, most_bytes_ = 0;
};

}  // namespace redblue::ranks
