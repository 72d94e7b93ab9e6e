#include <cstdlib>
#include <string_view>

#include "mpi.hpp"
#include "redblue/language/error.hpp"

/// This file stands in place of with_mpi.cpp in builds without MPI.
namespace redblue::cli {

std::unique_ptr<ranks::Transport> ranks_of_mpirun() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"})
    if (const char* size = std::getenv(name); size != nullptr && std::string_view(size) != "1")
      throw Unsupported(
          "mpirun started this program, and this build has no MPI: build with -DREDBLUE_MPI=ON, or start it alone, and "
          "--ranks are threads");
  return nullptr;
}

}  // namespace redblue::cli
