#!/bin/sh
# Starts PostgreSQL on the volume at PGDATA; an empty volume becomes a database cluster first.
#
#   PGDATA                   folder of the cluster, below the volume's mount point
#   RUNYARD_POSTGRES_USER    owner of the database (default runyard_owner)
#   RUNYARD_POSTGRES_DB      the database (default runyard)
#   RUNYARD_PASSWORD_FILE    file with the owner's password; read only while the cluster is made
#   RUNYARD_SOCKET_DIR       folder of the unix socket, writable (default /run/runyard)
# Arguments go to the server, e.g. -c max_connections=200.
set -eu

owner=${RUNYARD_POSTGRES_USER:-runyard_owner}
database=${RUNYARD_POSTGRES_DB:-runyard}
password_file=${RUNYARD_PASSWORD_FILE:-/etc/runyard/database/owner-password}
sockets=${RUNYARD_SOCKET_DIR:-/run/runyard}

if [ ! -s "$PGDATA/PG_VERSION" ]; then
  if [ ! -s "$password_file" ]; then
    echo "The volume is empty and there is no password in $password_file; mount the Secret with it." >&2
    exit 1
  fi
  # Made aside and renamed when complete: a crash in between leaves nothing that looks like a cluster.
  fresh="$PGDATA.new"
  rm -rf "$fresh"
  initdb --pgdata="$fresh" --username="$owner" --pwfile="$password_file" --auth=scram-sha-256 \
    --encoding=UTF8 --locale=C.UTF-8 --data-checksums --no-instructions
  echo 'host all all all scram-sha-256' >>"$fresh/pg_hba.conf"
  echo "CREATE DATABASE $database;" | postgres --single -D "$fresh" postgres >/dev/null
  sync
  mv "$fresh" "$PGDATA"
  echo "A new database cluster is in $PGDATA."
fi

exec postgres -D "$PGDATA" -c listen_addresses='*' -c unix_socket_directories="$sockets" -c jit=off "$@"
