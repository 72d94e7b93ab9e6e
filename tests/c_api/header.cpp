#include <redblue.h>
#include <redblue_mpi.h>

// redblue.h and redblue_mpi.h are C++ of an old standard, too. Called by c_api_test.c.
extern "C" int inits_set_struct_sizes(void);

namespace {

template <class S>
bool sets_size(void (*init)(S*)) {
  S s;
  init(&s);
  return s.struct_size == sizeof(S);
}

}  // namespace

int inits_set_struct_sizes(void) {
  return sets_size(redblue_problem_init) && sets_size(redblue_plan_options_init) &&
         sets_size(redblue_forward_tensors_init) && sets_size(redblue_backward_tensors_init) &&
         sets_size(redblue_scores_tensors_init) && sets_size(redblue_tangent_tensors_init) &&
         sets_size(redblue_second_tensors_init) && sets_size(redblue_thread_pool_init) &&
         sets_size(redblue_run_options_init) && sets_size(redblue_plan_info_init) &&
         sets_size(redblue_own_tiling_init) && sets_size(redblue_certificate_init) && sets_size(redblue_layout_init) &&
         sets_size(redblue_ranks_options_init) && sets_size(redblue_ranks_info_init);
}
