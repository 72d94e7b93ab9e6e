#include <redblue.h>

// Every initialiser names every member in order: a compiler that warns of those left out finds the ones forgotten.
redblue_problem problem = REDBLUE_PROBLEM_INIT;
redblue_plan_options plan_options = REDBLUE_PLAN_OPTIONS_INIT;
redblue_forward_tensors forward_tensors = REDBLUE_FORWARD_TENSORS_INIT;
redblue_backward_tensors backward_tensors = REDBLUE_BACKWARD_TENSORS_INIT;
redblue_thread_pool thread_pool = REDBLUE_THREAD_POOL_INIT;
redblue_run_options run_options = REDBLUE_RUN_OPTIONS_INIT;
redblue_plan_info plan_info = REDBLUE_PLAN_INFO_INIT;
