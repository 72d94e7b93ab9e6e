#!/usr/bin/env bash
# Installs what redblue needs on Debian 12 or later (Ubuntu 24.04 works too). It does nothing where nothing is missing.
#
#   scripts/setup.sh          what building, the demo and the Python package need
#   scripts/setup.sh --test   what the first tests need as well: test libraries, and NumPy and pytest in build/venv
#   scripts/setup.sh --dev    what all tests need: a second compiler, more Python packages; PyTorch and a browser where they
#                             can be had
set -euo pipefail
cd "$(dirname "$0")/.."

build_packages=(g++ cmake ninja-build libfmt-dev nlohmann-json3-dev libcli11-dev libminizip-dev zlib1g-dev libeigen3-dev
                liburing-dev python3-dev python3-venv)
test_packages=(libgtest-dev libgmock-dev librapidcheck-dev)
dev_packages=(clang-19 clang-tidy-19 clang-format-19 libclang-rt-19-dev lld-19 pkg-config ccache
              libopenmpi-dev openmpi-bin libmpich-dev mpich iproute2)

case ${1-} in
"") packages=("${build_packages[@]}") ;;
--test) packages=("${build_packages[@]}" "${test_packages[@]}") ;;
--dev) packages=("${build_packages[@]}" "${test_packages[@]}" "${dev_packages[@]}") ;;
*) echo "usage: scripts/setup.sh [--test | --dev]" >&2 && exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup: this is not Debian. Install by hand what these packages hold, then build as CONTRIBUTING.md says:" >&2
  echo "  ${packages[*]}" >&2
  exit 1
fi

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
install() {
  echo "setup: installing Debian packages: $*"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

missing=()
for package in "${packages[@]}"; do
  case " $(dpkg-query -W -f '${db:Status-Status} ' "$package" 2>/dev/null)" in
  *" installed "*) ;;  # one word per architecture
  *) missing+=("$package") ;;
  esac
done

if [ ${#missing[@]} -gt 0 ]; then
  [ ${#as_root[@]} -eq 0 ] || command -v sudo >/dev/null ||
    { echo "setup: run this as root, or install sudo; missing: ${missing[*]}" >&2 && exit 1; }
  install "${missing[@]}"
else
  echo "setup: all Debian packages are there"
fi

# pip_install REQUIREMENTS: into build/venv, unless they are there. A copy of the file says so. pip would compile the
# modules one after the other, on one core.
pip_install() {
  local done=build/venv/${1##*/}
  if cmp -s "$1" "$done"; then
    echo "setup: build/venv has the Python packages of $1"
    return
  fi
  echo "setup: installing into build/venv the Python packages $(grep -v '^#' "$1" | tr '\n' ' ')"
  [ -x build/venv/bin/python ] || /usr/bin/python3 -m venv build/venv
  build/venv/bin/pip install --quiet --disable-pip-version-check --no-compile -r "$1" || return
  build/venv/bin/python -m compileall -q -q -j 0 build/venv/lib || true  # some are no Python: data of tests
  cp "$1" "$done"
}

[ -z "${1-}" ] || pip_install scripts/requirements_test.txt
if [ "${1-}" = --dev ]; then
  pip_install scripts/requirements.txt
  pip_install scripts/requirements_torch.txt || echo "setup: the tests of PyTorch will be skipped: pip cannot install it here" >&2
  pip_install scripts/requirements_mpi.txt || echo "setup: the tests of mpi4py will be skipped: pip cannot install it here" >&2
  command -v chromium >/dev/null || install chromium ||
    echo "setup: chromium cannot be installed here: the tests of pages in a browser will be skipped" >&2
fi
