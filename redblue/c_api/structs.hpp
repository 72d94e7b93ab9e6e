#pragma once
#include <algorithm>

#include "redblue.h"
#include "redblue/planner/planner.hpp"
#include "redblue/runtime/run.hpp"
#include "redblue_mpi.h"

/// The structs of redblue.h and redblue_mpi.h as the library has them.
namespace redblue::c_api {

/// A struct with struct_size and its defaults.
template <class S>
S defaults();

/// Throws InvalidArgument unless the caller's struct is of this version of redblue.h.
template <class S>
const S& checked(const S* s, const char* type);

/// What the caller gives, of an earlier size or of today's; what an earlier version did not know has its default.
redblue_problem given(const redblue_problem* problem);
redblue_plan_options given(const redblue_plan_options* options);
redblue_forward_tensors given(const redblue_forward_tensors* tensors);
redblue_backward_tensors given(const redblue_backward_tensors* tensors);
redblue_scores_tensors given(const redblue_scores_tensors* tensors);
redblue_tangent_tensors given(const redblue_tangent_tensors* tensors);
redblue_second_tensors given(const redblue_second_tensors* tensors);
redblue_layout given(const redblue_layout* layout);
redblue_ranks_options given(const redblue_ranks_options* options);

/// The count, or INT64_MAX where it is larger.
inline int64_t saturated(Words count) { return std::min(count, Words(INT64_MAX)).to_index(); }

DType dtype_of(redblue_dtype t, const char* what);
/// The tensors, k and v with their scales, which C gives apart.
Tensors with_scales(const redblue_forward_tensors& from, Tensors tensors);
/// Only a bias may be a mask.
DType dtype_of_numbers(redblue_dtype t, const char* what);
int threads_of(int32_t threads);

Problem problem_of(const redblue_problem& p);
/// Without the cap.
plan::Options options_of(const redblue_plan_options& given, const redblue_problem& p, Operation op, DType compute,
                         DType dtype);

}  // namespace redblue::c_api

struct redblue_pattern {
  std::shared_ptr<const redblue::RunLists> rows;
  redblue::index_t n_k = 0;
};
