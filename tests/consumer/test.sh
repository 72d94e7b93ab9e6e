#!/usr/bin/env bash
# Usage: test.sh find_package|pkg_config|debian BUILD_DIR COMPILER
# Installs BUILD_DIR into an empty folder and moves it, or unpacks a Debian package of it there; builds and runs against it,
# away from the source tree: main.cpp, the C example, a schedule that redblue does not know and, where redblue_mpi was built,
# a C program over ranks.
set -euo pipefail
way=$1 build=$2 compiler=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "$way" = debian ]; then
  cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/package" >"$work/log"
  package=$(echo "$work"/package/redblue_*.deb)
  dpkg-deb --field "$package" Depends >"$work/depends"
  grep -q libminizip1 "$work/depends"
  dpkg-deb --extract "$package" "$work/unpacked"
  mv "$work/unpacked/usr" "$work/prefix"
else
  cmake --install "$build" --prefix "$work/installed" >"$work/log"
  mv "$work/installed" "$work/prefix"
fi
mkdir "$work/project"
cp "$here/CMakeLists.txt" "$here/main.cpp" "$work/project"
cp "$here/../../examples/06_c_api.c" "$work/project/main.c"
cp "$here/../mpi/from_c.c" "$work/project/ranks.c"
cp "$here"/../../examples/{04_your_schedule.cpp,two_sweeps.hpp} "$work/project"
cd "$work/project"
over_ranks() {  # skipped where MPI starts no processes
  ! mpirun --allow-run-as-root -n 1 true || mpirun --allow-run-as-root --oversubscribe -n 2 "$@"
}

case $way in
find_package | debian)
  cmake -G Ninja -S . -B build -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release
  cmake --build build
  build/consumer
  build/consumer_c
  build/your_schedule
  [ ! -x build/consumer_ranks ] || over_ranks build/consumer_ranks
  ;;
pkg_config)
  pc=$(find "$work/prefix" -name redblue.pc)
  export PKG_CONFIG_PATH=${pc%/*}
  libdir=$(pkg-config --variable=libdir redblue)
  # shellcheck disable=SC2046
  "$compiler" -std=c++20 main.cpp -o consumer $(pkg-config --cflags --libs redblue)
  LD_LIBRARY_PATH=$libdir ./consumer
  # shellcheck disable=SC2046
  cc -std=c99 main.c -o consumer_c $(pkg-config --cflags --libs redblue_c) -lm
  LD_LIBRARY_PATH=$libdir ./consumer_c
  if pkg-config --exists redblue_mpi; then
    # shellcheck disable=SC2046
    mpicc -std=c99 ranks.c -o consumer_ranks $(pkg-config --cflags --libs redblue_mpi)
    LD_LIBRARY_PATH=$libdir over_ranks ./consumer_ranks
  fi
  ;;
esac
if [ -x "$work/prefix/bin/redblue" ]; then "$work/prefix/bin/redblue" --version; fi
