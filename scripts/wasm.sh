#!/usr/bin/env bash
# Compiles the planner to WebAssembly, build/wasm/redblue_plan.wasm: the commands plan and explain of redblue, for the page
# of `redblue explore`. Needs what scripts/setup.sh --dev installs. The module says its size.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset wasm >/dev/null
cmake --build --preset wasm -j "${REDBLUE_JOBS:-$(nproc)}"
echo "build/wasm/redblue_plan.wasm: $(stat -c %s build/wasm/redblue_plan.wasm) bytes"
