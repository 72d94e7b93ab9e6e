#!/usr/bin/env bash
# ranks.sh MPIRUN N PROGRAM: starts the program as N ranks. It is skipped where this MPI starts no processes at all, as in
# containers without a name of their own.
set -uo pipefail
mpirun=("$1" --allow-run-as-root --oversubscribe -n "$2")
"${mpirun[@]}" true || { echo "$1 starts no processes here" && exit 77; }
exec "${mpirun[@]}" "$3"
