#!/usr/bin/env bash
# The documentation as web pages, build/site/index.html, from the files that the repository has anyway, and pages of the
# Python, C and C++ interfaces made of their own comments. A link that leads nowhere is an error. Needs mkdocs
# and the package redblue, of this state of the code, in PYTHON (default: build/venv/bin/python).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON-build/venv/bin/python}
source=build/site-source
rm -rf "$source"
mkdir -p "$source/bench"
cp README.md CHANGELOG.md CONTRIBUTING.md LICENSE "$source"
cp -r docs examples "$source"
cp -r bench/README.md bench/results "$source/bench"
"$python" site/api.py "$source/api"
"$python" -m mkdocs build --strict --quiet -f site/mkdocs.yml
"$python" -m redblue explore -o build/site/explorer.html
echo "build/site/index.html: $(find build/site -name '*.html' | wc -l) pages"
