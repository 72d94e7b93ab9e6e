#!/usr/bin/env bash
# Builds redblue and its peers, and races them: bench/peers/race.sh [--quick] (bench/README.md).
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh
bench/peers/build.sh
cmake --preset release >/dev/null
cmake --build build/release --target redblue_c redblue-cli
build/release/redblue doctor # plans are those of least modelled time on this machine
exec build/peers/venv/bin/python bench/peers/race.py "$@"
