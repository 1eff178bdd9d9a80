"""Thousands of finished runs in the database, as copies of one that really ran, written in bulk by its owner.

Used by __main__.py, which measures latency before and after.
"""

import psycopg
from psycopg import sql

_BY_THREAD = ("thread_leases", "checkpoints", "checkpoint_blobs", "checkpoint_writes")
_BOTH = {"thread_id": "thread_id", "run_id": "run_id"}


def add_finished_runs(database: str, count: int) -> None:
    """Adds `count` threads with a finished run each: rows, event log and checkpoints. `database`: the owner's URL.

    Raises RuntimeError when no run has succeeded yet.
    """
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT run_id, thread_id FROM runs WHERE status = 'success' AND NOT temporary"
            " AND graph_id = 'tokens' ORDER BY created_at DESC LIMIT 1"
        ).fetchone()
        if row is None:
            raise RuntimeError("there is no finished run to copy")
        run_id, thread_id = row
        connection.execute(
            "CREATE TEMP TABLE made AS SELECT gen_random_uuid()::text AS thread_id, gen_random_uuid()::text AS run_id"
            f" FROM generate_series(1, {count:d})"
        )
        _copy(connection, "threads", {"thread_id": "thread_id"}, "thread_id", thread_id)
        _copy(connection, "runs", _BOTH, "run_id", run_id)
        _copy(connection, "event_batches", {"run_id": "run_id"}, "run_id", run_id)
        for table in _BY_THREAD:
            _copy(connection, table, {"thread_id": "thread_id"}, "thread_id", thread_id)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("ANALYZE")


def _copy(
    connection: "psycopg.Connection[tuple[str, ...]]", table: str, new: dict[str, str], key: str, value: str
) -> None:
    """Copies the rows of `table` whose `key` is `value`, once for each row of `made`, with the ids in `new`."""
    ids = sql.SQL(", ").join(
        sql.SQL("{}::text, made.{}").format(sql.Literal(column), sql.Identifier(of)) for column, of in new.items()
    )
    copy = sql.SQL(
        "INSERT INTO {table} SELECT (jsonb_populate_record(old, jsonb_build_object({ids}))).*"
        " FROM made, {table} AS old WHERE old.{key} = %s"
    )
    connection.execute(copy.format(table=sql.Identifier(table), ids=ids, key=sql.Identifier(key)), (value,))
