#!/usr/bin/env bash
# The documentation as web pages, build/site/index.html, from the files that the repository has anyway, and pages of the
# Python, C and C++ interfaces made of their own comments. A link that leads nowhere is an error. The pages are made in
# build/site-venv, an environment of their own; the explorer needs the package redblue, of this state of the code: that
# of PYTHON or of build/venv, else one that is compiled into build/site-venv, which takes 3 to 5 minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh
venv=build/site-venv
if ! cmp -s scripts/requirements_site.txt $venv/installed.txt; then
  echo "site: making the Python environment $venv: $(grep -v '^#' scripts/requirements_site.txt | tr '\n' ' ')"
  /usr/bin/python3 -m venv --clear $venv
  $venv/bin/pip install --quiet --disable-pip-version-check -r scripts/requirements_site.txt
  cp scripts/requirements_site.txt $venv/installed.txt
fi
python=
for candidate in ${PYTHON-} build/venv/bin/python; do
  if "$candidate" -c 'import redblue' 2>/dev/null; then python=$candidate && break; fi
done
if [ -z "$python" ]; then
  echo "site: compiling the package redblue into $venv, for the explorer: 3 to 5 minutes on two cores"
  $venv/bin/pip install --quiet --disable-pip-version-check --config-settings=build-dir=build/site-package .
  python=$venv/bin/python
fi

source=build/site-source
rm -rf "$source"
mkdir -p "$source/bench"
cp README.md CHANGELOG.md CONTRIBUTING.md LICENSE site/site.css "$source"
cp -r docs examples "$source"
cp -r bench/README.md bench/results "$source/bench"
$venv/bin/python site/api.py "$source/api"
"$python" -m redblue explore -o "$source/explorer.html"
NO_MKDOCS_2_WARNING=1 $venv/bin/python -m mkdocs build --strict --quiet -f site/mkdocs.yml
$venv/bin/python site/check.py build/site
echo "build/site/index.html: $(find build/site -name '*.html' | wc -l) pages; to search in them, start" \
  "\`python3 -m http.server -d build/site\` and open http://localhost:8000"
