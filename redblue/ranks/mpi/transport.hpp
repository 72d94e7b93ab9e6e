#pragma once
#include <mpi.h>

#include <memory>

#include "redblue/ranks/execute.hpp"

/// MPI carries the messages. This is the only header that includes mpi.h; what it declares is in the library
/// redblue_mpi (-DREDBLUE_MPI=ON).
namespace redblue::ranks {

/// Messages over a duplicate of this communicator, which all of its ranks make together and free together. MPI 3.1 is
/// enough. Throws Error where MPI is not initialised, or has ended.
std::unique_ptr<Transport> mpi_transport(MPI_Comm comm);

/// run() of redblue/ranks/execute.hpp, on all ranks of the communicator. With more threads than one, MPI must have been
/// initialised with MPI_THREAD_FUNNELED or more: the calling thread alone calls MPI.
Ran run(const World& world, MPI_Comm comm, const Tensors& tensors, const How& how = {});

}  // namespace redblue::ranks
