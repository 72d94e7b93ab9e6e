#pragma once
#include "redblue/language/types.hpp"

namespace redblue {

/// What words of int8 stand for: each word times the scale of its batch, key-value head and block of keys. The scales
/// are fp32. A stride of 0 is for scales that batches, heads or blocks share.
struct Scales {
  const float* data = nullptr;
  index_t keys = 0;  ///< of a block: key j is in block j / keys; 0: all keys of a head have one scale
  index_t batch_stride = 0, head_stride = 0, block_stride = 0;

  float of(index_t batch, index_t head, index_t key) const {
    return data[batch * batch_stride + head * head_stride + (keys == 0 ? 0 : key / keys * block_stride)];
  }
};

}  // namespace redblue
