#!/usr/bin/env bash
# program.sh REDBLUE MPIRUN PYTHON: the program as ranks of MPI gives what it gives alone, in one file, and fails as one.
set -euo pipefail
redblue=$1 mpirun=("$2" --allow-run-as-root --oversubscribe) python=$3
"${mpirun[@]}" -n 2 true || { echo "$2 starts no processes here" && exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$python" - <<'PYTHON'
import random, struct

random.seed(1)
for name, heads in (("q", 4), ("k", 2), ("v", 2)):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': (1, {heads}, 37, 8), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    numbers = [random.gauss(0, 1) for _ in range(heads * 37 * 8)]
    with open(name + ".npy", "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(numbers)}f", *numbers))
PYTHON
files=(--q q.npy --k k.npy --v v.npy --M 500 --causal)
"$redblue" run "${files[@]}" --ranks 4 --o threads.npy --lse threads_lse.npy --verify --quiet
"${mpirun[@]}" -n 4 "$redblue" run "${files[@]}" --ranks 4 --o ranks.npy --lse ranks_lse.npy --verify
cmp threads.npy ranks.npy
cmp threads_lse.npy ranks_lse.npy
"$python" - <<'PYTHON'
data = bytearray(open("k.npy", "rb").read())
data[-4:] = b"\0\0\xc0\x7f"  # a NaN, in rows of the last rank
open("nan.npy", "wb").write(data)
PYTHON
"${mpirun[@]}" -n 4 "$redblue" run --q q.npy --k nan.npy --v v.npy --M 500 --ranks 4 --overlap --o nan_o.npy >out 2>err
[ "$(grep -c "k has a NaN at \[0, 1, 36, 7\]: so has every output that depends on it" err)" = 1 ]
grep -q "its messages alone take" out
if "${mpirun[@]}" -n 2 "$redblue" run "${files[@]}" --ranks 3 --o none.npy 2>err; then echo "3 ranks ran as 2" && exit 1; fi
grep -q "ranks 3: mpirun started 2; give as many" err
[ ! -e none.npy ]
