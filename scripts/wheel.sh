#!/usr/bin/env bash
# Builds the wheel into build/wheels and installs it into build/venv. Fails where the wheel wants more of a machine than
# manylinux allows: a library beside those of C and C++, or a newer glibc than any manylinux has. It is compiled as the
# release preset compiles, so that ccache has the library's objects where that was built with it. Arguments go to pip.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=build/venv/bin
rm -rf build/wheels
CC=/usr/bin/gcc CXX=/usr/bin/g++ $bin/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation . \
  --wheel-dir build/wheels/raw --config-settings=build-dir=build/wheel "$@"
PATH=$PWD/$bin:$PATH $bin/auditwheel repair --wheel-dir build/wheels build/wheels/raw/redblue-*.whl 2>build/wheels/log ||
  { cat build/wheels/log >&2; exit 1; }
wheel=$(echo build/wheels/redblue-*.whl)
case $wheel in *manylinux*) ;; *) echo "$wheel is not for manylinux" >&2; exit 1 ;; esac
# auditwheel copies libraries that the policy does not allow into the wheel, in place of an error.
if $bin/python -m zipfile -l "$wheel" | grep '^redblue\.libs/'; then
  echo "$wheel brings the libraries above: link nothing but those of C and C++" >&2
  exit 1
fi
$bin/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheel"
