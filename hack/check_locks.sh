#!/usr/bin/env bash
# Fails when a lock names a URL or an index, or holds a package without a hash. Called by `make lint` and `make lock`.
set -euo pipefail
cd "$(dirname "$0")/.."

bad=0
for file in requirements.lock requirements/*.lock; do
  if grep -nE '://|--(index|extra-index|find-links|trusted-host)' "$file"; then
    echo "$file names a URL or an index; run 'make lock'" >&2
    bad=1
  fi
  pins=$(grep -cE '^[A-Za-z0-9].*==' "$file")
  hashed=$(grep -cE '^[A-Za-z0-9].*== *[^ ]+.*\\$' "$file")
  if [ "$pins" -ne "$hashed" ]; then
    echo "$file holds $((pins - hashed)) packages without a hash; run 'make lock'" >&2
    bad=1
  fi
done
exit "$bad"
