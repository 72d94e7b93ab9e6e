#pragma once
#include <vector>

#include "redblue/ranks/execute.hpp"

/// From tensors of the whole to those of ranks, and back.
namespace redblue::ranks {

/// The rows that a rank has at home of tensors of the whole, in memory of their own; outputs have room, and need no
/// data in the whole. Modifiers but a bias stay where they are.
class OwnRows {
 public:
  OwnRows(const World& world, int rank, const Tensors& whole);
  OwnRows(const OwnRows&) = delete;
  OwnRows& operator=(const OwnRows&) = delete;
  ~OwnRows() = default;

  const Tensors& tensors() const { return tensors_; }
  /// Copies the outputs into the whole.
  void write_to(const Tensors& whole) const;
  /// The bytes of the outputs, one array after the other.
  std::vector<std::byte> outputs() const;

 private:
  const World& world_;
  int rank_;
  Tensors tensors_;
  std::vector<std::vector<std::byte>> memory_;
};

/// All ranks call it after a run: rank 0 gets the outputs of all ranks into `whole`, which others need not have.
void collect(const World& world, Transport& transport, const OwnRows& own, const Tensors& whole,
             std::chrono::milliseconds patience);

}  // namespace redblue::ranks
