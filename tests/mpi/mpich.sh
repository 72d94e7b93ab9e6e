#!/usr/bin/env bash
# REDBLUE_NEEDS=... mpich.sh BUILD: attention over MPICH, where it stands beside the MPI that the build took. Debian calls its
# programs *.mpich.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd) build=$1
command -v mpicxx.mpich >/dev/null && command -v mpiexec.mpich >/dev/null || { echo "MPICH is not here"; exit 77; }
mpiexec.mpich -n 2 true || { echo "MPICH starts no processes here" && exit 77; }
folder=$build/mpich
mkdir -p "$folder"
flags=(-std=c++20 -O1 -DMPICH_SKIP_MPICXX -I"$source" -I"$source/tests" -isystem /usr/include/eigen3
       '-DFMT_BEGIN_NAMESPACE=namespace fmt { inline namespace redblue_v9 {' '-DFMT_END_NAMESPACE=} }')
mpicxx.mpich "${flags[@]}" "$source/redblue/ranks/mpi/transport.cpp" "$source/tests/mpi/main.cpp" -o "$folder/ranks_over_mpi" \
  "$build/tests/libredblue_test_support.a" "$build/libredblue.a" $REDBLUE_NEEDS -lgtest -lgmock
for ranks in 2 4; do mpiexec.mpich -n $ranks "$folder/ranks_over_mpi"; done
