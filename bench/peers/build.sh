#!/usr/bin/env bash
# Installs the peers (Debian packages, a Python environment in build/peers/venv) and compiles what race.py loads into
# build/peers/lib. Does nothing where nothing is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."

missing=()
for package in g++ libopenblas-dev libxsmm-dev libdnnl-dev python3-venv; do
  dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  echo "peers: installing Debian packages: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

if ! cmp -s bench/peers/requirements.txt build/peers/venv/installed.txt; then
  echo "peers: making the Python environment build/peers/venv"
  /usr/bin/python3 -m venv --clear build/peers/venv
  build/peers/venv/bin/pip install --quiet --disable-pip-version-check -r bench/peers/requirements.txt
  cp bench/peers/requirements.txt build/peers/venv/installed.txt
fi

compiler=${CXX:-g++}
# Not -ffast-math: linked into a shared library it would make every thread of the process flush small numbers to zero.
flags="-std=c++20 -O3 -march=native -mprefer-vector-width=512 -fno-math-errno -fno-trapping-math -ffinite-math-only -fopenmp -fPIC -shared"
lib=build/peers/lib
mkdir -p $lib
build() { # name, libraries
  local to=$lib/$1.so
  for source in bench/peers/build.sh bench/peers/"$1".cpp bench/peers/attention_loops.hpp bench/peers/peer.h; do
    if [ "$source" -nt "$to" ]; then
      echo "peers: compiling $1"
      # shellcheck disable=SC2086
      "$compiler" $flags bench/peers/"$1".cpp -o "$to" "${@:2}"
      return
    fi
  done
}
build openblas -lopenblas
build libxsmm -lxsmm -lxsmmnoblas -ldl
build onednn -ldnnl
echo "$("$compiler" --version | head -1): $flags" > $lib/flags.txt
