#!/usr/bin/env bash
# Makes .venv from a hashed lock and installs Runyard into it, editable. Called by the Makefile: hack/venv.sh LOCK STAMP
# Uses uv if it is there and pip has no index of its own configured (uv doesn't read pip's configuration); else pip.
# PYTHON names the interpreter (default python3).
set -euo pipefail
cd "$(dirname "$0")/.."
lock=$1 stamp=$2
python=${PYTHON:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  found=$("$python" --version 2>&1 || true)
  echo "Runyard needs Python 3.11 or newer; '$python' is ${found:-not there}. Name another: make PYTHON=python3.12 …" >&2
  exit 1
fi
if ! .venv/bin/python -c '' 2>/dev/null; then
  rm -rf .venv
  if ! "$python" -m venv .venv; then
    rm -rf .venv
    echo "'$python -m venv' failed; on Debian and Ubuntu install the package python3-venv." >&2
    exit 1
  fi
fi

pip_is_configured() { .venv/bin/pip config list 2>/dev/null | grep -qE 'index|find-links|proxy|cert'; }
if command -v uv >/dev/null && ! pip_is_configured; then
  install() { uv pip install --quiet --python .venv/bin/python "$@"; }
else
  install() { .venv/bin/pip install --quiet --no-compile --disable-pip-version-check "$@"; }
fi

echo "Installing $lock into .venv …"
install --require-hashes --no-deps -r "$lock"
install --no-deps --no-build-isolation -e .
touch "$stamp"
