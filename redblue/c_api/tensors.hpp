#pragma once
#include <array>

#include "redblue.h"
#include "redblue/planner/shapes.hpp"
#include "redblue/runtime/run.hpp"

/// The tensors of redblue.h as the library has them.
namespace redblue::c_api {

/// `name` is for messages. Throws InvalidArgument where data is not aligned, or strides reach too far.
Tensor tensor_of(const redblue_tensor& t, const std::array<index_t, 4>& shape, SlowArray name);
Tensor tensor_of(const redblue_const_tensor& t, const std::array<index_t, 4>& shape, SlowArray name);

/// With the shapes that the problem gives them. data is NULL where the caller gives none.
Tensors tensors_of(const Problem& problem, const redblue_forward_tensors& tensors);
Tensors tensors_of(const Problem& problem, const redblue_backward_tensors& tensors);
Tensors tensors_of(const Problem& problem, const redblue_scores_tensors& tensors);
Tensors tensors_of(const Problem& problem, const redblue_tangent_tensors& tensors);
Tensors tensors_of(const Problem& problem, const redblue_second_tensors& tensors);

}  // namespace redblue::c_api
