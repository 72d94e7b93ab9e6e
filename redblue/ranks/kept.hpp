#pragma once
#include <map>
#include <utility>
#include <vector>

#include "redblue/runtime/run.hpp"

namespace redblue::ranks {

/// Q, K and V of the heads of a rank's group, which a forward pass leaves for its gradient (Layout::keeps_heads). It
/// goes with the q, k and v of that pass alone.
class Kept {
 public:
  /// `tensor` lies in `memory`.
  void keep(SlowArray array, std::vector<std::byte> memory, const Tensor& tensor) {
    arrays_[array] = {std::move(memory), tensor};
  }
  /// Null: no pass has left it here.
  const Tensor* find(SlowArray array) const {
    const auto found = arrays_.find(array);
    return found == arrays_.end() ? nullptr : &found->second.tensor;
  }

 private:
  struct Array {
    std::vector<std::byte> memory;
    Tensor tensor;
  };
  std::map<SlowArray, Array> arrays_;
};

}  // namespace redblue::ranks
