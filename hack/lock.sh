#!/usr/bin/env bash
# Writes requirements.lock (everything) and requirements/<extra>.lock from pyproject.toml: hashed, universal, and
# without any index, so that pip's or uv's own configuration says where packages come from. Called by `make lock`.
# UV names the uv to use; without one it is installed into build/uv. LOCK_ARGS is passed on, e.g. `--upgrade`.
set -euo pipefail
cd "$(dirname "$0")/.."

uv=${UV:-$(command -v uv || true)}
if [ -z "$uv" ]; then
  python3 -m venv build/uv
  build/uv/bin/pip install --quiet uv
  uv=build/uv/bin/uv
fi

compile() { # extra, file, further arguments
  local extra=$1 file=$2
  shift 2
  # shellcheck disable=SC2086
  "$uv" pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
    --custom-compile-command "make lock" --extra "$extra" --output-file "$file" "$@" ${LOCK_ARGS:-} \
    pyproject.toml requirements/build.in
  echo "$file: $(grep -c '==' "$file") packages"
}

compile dev requirements.lock
for extra in operator gateway runtime embedded; do
  compile "$extra" "requirements/$extra.lock" --constraint requirements.lock
done
hack/check_locks.sh
