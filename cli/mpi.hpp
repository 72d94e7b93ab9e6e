#pragma once
#include <memory>

#include "redblue/ranks/transport.hpp"

namespace redblue::cli {

/// The ranks that mpirun started this program as; null where nothing did, or it started one. Throws Unsupported where
/// it did and this build has no MPI.
std::unique_ptr<ranks::Transport> ranks_of_mpirun();

}  // namespace redblue::cli
