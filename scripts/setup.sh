#!/usr/bin/env bash
# Installs what redblue needs on Debian 12 or later (Ubuntu 24.04 works too). Does nothing where nothing is missing.
#
#   scripts/setup.sh         what building, the demo and the Python package need
#   scripts/setup.sh --dev   what the tests need as well: a second compiler, test libraries, a Python environment; PyTorch and a
#                            browser where they can be had
set -euo pipefail
cd "$(dirname "$0")/.."

build_packages=(g++ cmake ninja-build libfmt-dev nlohmann-json3-dev libcli11-dev libminizip-dev zlib1g-dev libeigen3-dev
                python3-dev python3-venv)
test_packages=(clang-19 clang-tidy-19 clang-format-19 libclang-rt-19-dev libgtest-dev libgmock-dev librapidcheck-dev
               pkg-config ccache)

case ${1-} in
"") packages=("${build_packages[@]}") ;;
--dev) packages=("${build_packages[@]}" "${test_packages[@]}") ;;
*) echo "usage: scripts/setup.sh [--dev]" >&2 && exit 2 ;;
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

if [ "${1-}" = --dev ]; then
  command -v chromium >/dev/null || install chromium ||
    echo "setup: chromium cannot be installed here: the tests of pages in a browser will be skipped" >&2
  if cat scripts/requirements.txt scripts/requirements_torch.txt | cmp -s - build/venv/installed.txt; then
    echo "setup: the Python environment build/venv is there"
  else
    echo "setup: making the Python environment build/venv: $(grep -v '^#' scripts/requirements.txt | tr '\n' ' ')"
    /usr/bin/python3 -m venv --clear build/venv
    build/venv/bin/pip install --quiet --disable-pip-version-check -r scripts/requirements.txt
    build/venv/bin/pip install --quiet --disable-pip-version-check -r scripts/requirements_torch.txt ||
      echo "setup: pip cannot install $(grep -v '^#' scripts/requirements_torch.txt | tr '\n' ' ')here: their tests will be skipped" >&2
    cat scripts/requirements.txt scripts/requirements_torch.txt >build/venv/installed.txt
  fi
fi
