#!/usr/bin/env bash
# Pins the dependencies: `make lock` calls this with the virtual environment.
#
# The lock files hold versions and hashes, and no address of an index. They are
# made with the oldest supported Python, because what a package needs only
# there would be missing otherwise, while an unneeded package does no harm.
set -euo pipefail
venv=$1

"$venv/bin/python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
  echo "make lock: needs Python 3.11; remove $venv and run: make lock PYTHON=python3.11" >&2
  exit 1
}
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check 'pip-tools>=7.5'

compile() {
  "$venv/bin/pip-compile" --quiet --upgrade --generate-hashes --strip-extras --no-header --no-annotate \
    --no-emit-options --all-build-deps "$@" pyproject.toml
}
compile --output-file requirements.lock
compile --extra dev --constraint requirements.lock --output-file requirements-dev.lock
