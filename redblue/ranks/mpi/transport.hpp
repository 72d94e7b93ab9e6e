#pragma once
#include <mpi.h>

#include <chrono>
#include <memory>

#include "redblue/ranks/execute.hpp"

/// MPI carries the messages. This is the only header that includes mpi.h; what it declares is in the library
/// redblue_mpi (-DREDBLUE_MPI=ON).
namespace redblue::ranks {

/// Throws RankError where MPI is not initialised, or has ended.
void require_mpi();
/// Throws RankError where MPI was initialised for fewer threads than the work of a rank takes.
void require_level(const How& how);

/// Messages over a duplicate of this communicator, which all of its ranks make together and free together. MPI 3.1 is
/// enough. Throws RankError where require_mpi does, and where a rank does not come within `patience`.
std::unique_ptr<Transport> mpi_transport(MPI_Comm comm, std::chrono::milliseconds patience = std::chrono::minutes(10));

/// run() of redblue/ranks/execute.hpp, on all ranks of the communicator. With more threads than one, MPI must have been
/// initialised with MPI_THREAD_FUNNELED or more: the calling thread alone calls MPI.
Ran run(const World& world, MPI_Comm comm, const Tensors& tensors, const How& how = {});

}  // namespace redblue::ranks
