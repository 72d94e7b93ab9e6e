#pragma once
/// Attention over the ranks of MPI: of the library redblue_mpi.
#include "redblue/ranks/mpi/transport.hpp"
