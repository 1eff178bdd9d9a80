"""The tables, as SQLAlchemy Core. Queries in this package use them; the migrations create them.

`lg_*` are LangGraph's own tables, made by its savers; only the columns used here are named.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    column,
    literal_column,
    table,
    text,
)

from runyard_store.column_types import FilterableJson, JsonText, UtcDateTime

metadata = MetaData()

threads = Table(
    "threads",
    metadata,
    Column("thread_id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("state_updated_at", UtcDateTime),
    Column("metadata", FilterableJson, nullable=False),
    Column("config", JsonText, nullable=False),
    Column("status", Text, nullable=False),
    Column("values", JsonText),
    Column("interrupts", JsonText, nullable=False),
    Column("error", JsonText),
    Column("head", JsonText),
    Column("graph_id", Text),
    Column("run_seq", Integer, nullable=False),
    Column("unfinished", Integer, nullable=False),
    Index("threads_by_user", "user_id", "updated_at"),
    Index("threads_by_creation", "user_id", "created_at"),
)

thread_leases = Table(
    "thread_leases",
    metadata,
    Column("thread_id", Text, ForeignKey("threads.thread_id", ondelete="CASCADE"), primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("run_id", Text),
    Column("attempt", Integer, nullable=False),
    Column("holder", Text),
    Column("claimed_ms", BigInteger, nullable=False),
    Column("last_base", BigInteger, nullable=False),
    Column("pre_run", JsonText),
)

_UNFINISHED_INDEX = text("status IN ('pending', 'running')")
UNFINISHED: ColumnElement[bool] = literal_column("runs.status IN ('pending', 'running')", Boolean)
"""Literals, not parameters: a prepared statement's generic plan can use the partial index only then."""

_CANCELLED_INDEX = text("status IN ('pending', 'running') AND cancel_action IS NOT NULL")
_TEMPORARY_INDEX = text("temporary AND ended_at IS NOT NULL")
TEMPORARY_ENDED: ColumnElement[bool] = literal_column("runs.temporary AND runs.ended_at IS NOT NULL", Boolean)

runs = Table(
    "runs",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("thread_id", Text, ForeignKey("threads.thread_id", ondelete="CASCADE"), nullable=False),
    Column("user_id", Text, nullable=False),
    Column("assistant_id", Text, nullable=False),
    Column("graph_id", Text, nullable=False),
    Column("agent_name", Text, nullable=False),
    Column("sequence", Integer, nullable=False),
    Column("status", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("started_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("attempt", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("event_base", BigInteger, nullable=False),
    Column("metadata", FilterableJson, nullable=False),
    Column("payload", JsonText, nullable=False),
    Column("multitask_strategy", Text, nullable=False),
    Column("on_disconnect", Text, nullable=False),
    Column("temporary", Boolean, nullable=False),
    Column("object_uid", Text),
    Column("object_made_at", UtcDateTime),
    Column("cancel_action", Text),
    Column("cancel_reason", Text),
    Column("result", JsonText),
    Column("error", JsonText),
    Column("not_before", UtcDateTime),
    UniqueConstraint("thread_id", "sequence", name="runs_thread_sequence"),
    Index("runs_unfinished", "created_at", postgresql_where=_UNFINISHED_INDEX, sqlite_where=_UNFINISHED_INDEX),
    Index("runs_cancelled", "created_at", postgresql_where=_CANCELLED_INDEX, sqlite_where=_CANCELLED_INDEX),
    Index("runs_temporary", "ended_at", postgresql_where=_TEMPORARY_INDEX, sqlite_where=_TEMPORARY_INDEX),
)

# No foreign key: the append is the hot path, its fence proves the thread, and delete_run removes the batches.
event_batches = Table(
    "event_batches",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("first_seq", BigInteger, primary_key=True),
    Column("first_base", BigInteger, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("n", Integer, nullable=False),
    Column("blob", LargeBinary, nullable=False),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("key_hash", Text, nullable=False, unique=True),
    Column("created_at", UtcDateTime, nullable=False),
    Column("name", Text, nullable=False),
    Column("revoked_at", UtcDateTime),
)

agent_graphs = Table(
    "agent_graphs",
    metadata,
    Column("agent_name", Text, primary_key=True),
    Column("template_hash", Text, primary_key=True),
    Column("graphs", JsonText, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
)

lg_checkpoints = table(
    "checkpoints",
    column("thread_id", Text),
    column("checkpoint_ns", Text),
    column("checkpoint_id", Text),
    column("metadata", FilterableJson),
)
_WRITE_COLUMNS = ("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "task_path", "idx", "channel", "type")
lg_writes_postgres = table("checkpoint_writes", *map(column, _WRITE_COLUMNS), column("blob", LargeBinary))
lg_blobs_postgres = table("checkpoint_blobs", column("thread_id", Text))
lg_writes_sqlite = table("writes", *map(column, _WRITE_COLUMNS), column("value", LargeBinary))
