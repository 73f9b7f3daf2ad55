#!/usr/bin/env bash
# Installs a lock file and dhtcrawl into a virtual environment: setup.sh VENV LOCKFILE
#
# `make setup` and the targets that need it call this. Only Python 3.11 or later
# has to be there; where something is missing, it prints the command that brings
# it and ends with 1. PYTHON=… chooses the interpreter, PIP_OPTIONS=… goes to pip.
set -euo pipefail
venv=$1
lock=$2

say() { echo "setup: $*" >&2; }

# A name on PATH is not enough: version managers put stubs there that only complain.
runs() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, '"$2"'))' 2>/dev/null; }

# 3.12 and 3.11 first: plyvel, the binding of LevelDB, has wheels for them.
choose_python() {
  local name
  for name in python3 python3.12 python3.11; do runs "$name" 12 && echo "$name" && return; done
  for name in python3 python3.13 python3.14; do runs "$name" 99 && echo "$name" && return; done
  return 1
}

apt_command() { echo "$([ "$(id -u)" = 0 ] || echo 'sudo ')apt-get install -y $*"; }

# What Debian and Ubuntu call the missing parts, so that one command brings them all.
missing_packages() {
  local version=$1 headers
  "$python" -c 'import ensurepip, venv' 2>/dev/null || echo "python$version-venv"
  [ "${version#3.}" -ge 13 ] || return 0
  headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
  command -v c++ >/dev/null || echo g++
  [ -e /usr/include/leveldb/db.h ] || echo libleveldb-dev
  [ -e "$headers/Python.h" ] || echo "python$version-dev"
}

refuse() {
  local version=$1 why=$2 packages
  say "$why"
  packages=$(missing_packages "$version" | tr '\n' ' ')
  if [ -n "$packages" ] && command -v apt-get >/dev/null; then
    # shellcheck disable=SC2086
    say "run this, then the same command again:  $(apt_command $packages)"
  else
    say "install Python 3.12 or 3.11 with its venv module, then: PYTHON=python3.12 make setup"
  fi
  exit 1
}

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

usable() { [ -x "$venv/bin/python" ] && runs "$venv/bin/python" 99 && "$venv/bin/python" -m pip --version >/dev/null 2>&1; }

# An environment of another version than PYTHON=… asks for is replaced.
chosen() { [ -z "${PYTHON:-}" ] || [ "$(version_of "$PYTHON")" = "$(version_of "$venv/bin/python")" ]; }

if ! { usable && chosen; }; then
  python=${PYTHON:-$(choose_python)} || {
    say "no Python 3.11 or later found; on Debian and Ubuntu:  $(apt_command python3 python3-venv)"
    exit 1
  }
  runs "$python" 99 || { say "$python is not Python 3.11 or later"; exit 1; }
  version=$(version_of "$python")
  "$python" -c 'import ensurepip, venv' 2>/dev/null || refuse "$version" "Python $version here has no venv module"
  say "creating $venv with Python $version"
  "$python" -m venv --clear "$venv"
fi

python=$venv/bin/python
version=$(version_of "$python")
pip() { "$python" -m pip --disable-pip-version-check --quiet "$@"; }

# Without a wheel plyvel is built, which needs a compiler and LevelDB's headers:
# better said at once than after a screenful of compiler errors.
if [ "${version#3.}" -ge 13 ] && ! "$python" -c 'import plyvel' 2>/dev/null; then
  plyvel=$(sed -n 's/^\(plyvel==[^ ]*\).*/\1/p' "$lock")
  if ! pip install --no-deps --only-binary plyvel "$plyvel" 2>/dev/null; then
    why="$plyvel has no wheel for Python $version and has to be built"
    [ -z "$(missing_packages "$version")" ] || refuse "$version" "$why"
    say "$why: a minute"
  fi
fi

say "installing $lock"
# shellcheck disable=SC2086
pip install ${PIP_OPTIONS-} --require-hashes -r "$lock" || {
  say "installing failed; the lines above say why (is the package index reachable?)"
  exit 1
}
# Editable: the command runs what stands in this directory. The build backend is in the lock.
pip install --no-deps --no-build-isolation --editable .
