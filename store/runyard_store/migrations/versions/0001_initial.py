"""Threads, their leases, runs, the event log and API keys; on Postgres the fence that LangGraph's saver calls."""

import sqlalchemy as sa
from alembic import op

from runyard_store.column_types import FilterableJson, JsonText, UtcDateTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

UNFINISHED = sa.text("status IN ('pending', 'running')")

# FOR SHARE waits for a claim under way, then sees its epoch; until its own transaction ends no claim goes through.
FENCE = """
CREATE OR REPLACE FUNCTION runyard_fence(of_thread text, of_epoch bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM thread_leases WHERE thread_id = of_thread AND epoch = of_epoch FOR SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the lease of thread % has another epoch', of_thread USING ERRCODE = 'RY001';
  END IF;
END $$"""


def upgrade() -> None:
    _threads()
    _runs()
    _events_and_keys()
    if op.get_bind().dialect.name == "postgresql":
        op.execute(FENCE)


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION runyard_fence(text, bigint)")
    for name in ("api_keys", "event_batches", "runs", "thread_leases", "threads"):
        op.drop_table(name)


def _threads() -> None:
    op.create_table(
        "threads",
        sa.Column("thread_id", sa.Text, primary_key=True),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        sa.Column("state_updated_at", UtcDateTime),
        sa.Column("metadata", FilterableJson, nullable=False),
        sa.Column("config", JsonText, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("values", JsonText),
        sa.Column("interrupts", JsonText, nullable=False),
        sa.Column("error", JsonText),
        sa.Column("head", JsonText),
        sa.Column("graph_id", sa.Text),
        sa.Column("run_seq", sa.Integer, nullable=False),
        sa.Column("unfinished", sa.Integer, nullable=False),
    )
    op.create_index("threads_by_user", "threads", ["user_id", "updated_at"])
    op.create_table(
        "thread_leases",
        sa.Column("thread_id", sa.Text, sa.ForeignKey("threads.thread_id", ondelete="CASCADE"), primary_key=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("run_id", sa.Text),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("holder", sa.Text),
        sa.Column("claimed_ms", sa.BigInteger, nullable=False),
        sa.Column("last_base", sa.BigInteger, nullable=False),
        sa.Column("pre_run", JsonText),
    )


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("thread_id", sa.Text, sa.ForeignKey("threads.thread_id", ondelete="CASCADE"), nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("assistant_id", sa.Text, nullable=False),
        sa.Column("graph_id", sa.Text, nullable=False),
        sa.Column("agent_name", sa.Text, nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        sa.Column("started_at", UtcDateTime),
        sa.Column("ended_at", UtcDateTime),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("event_base", sa.BigInteger, nullable=False),
        sa.Column("metadata", FilterableJson, nullable=False),
        sa.Column("payload", JsonText, nullable=False),
        sa.Column("multitask_strategy", sa.Text, nullable=False),
        sa.Column("on_disconnect", sa.Text, nullable=False),
        sa.Column("temporary", sa.Boolean, nullable=False),
        sa.Column("object_uid", sa.Text),
        sa.Column("object_made_at", UtcDateTime),
        sa.Column("cancel_action", sa.Text),
        sa.Column("cancel_reason", sa.Text),
        sa.Column("result", JsonText),
        sa.Column("error", JsonText),
        sa.UniqueConstraint("thread_id", "sequence", name="runs_thread_sequence"),
    )
    op.create_index("runs_unfinished", "runs", ["created_at"], postgresql_where=UNFINISHED, sqlite_where=UNFINISHED)


def _events_and_keys() -> None:
    op.create_table(
        "event_batches",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("first_seq", sa.BigInteger, primary_key=True),
        sa.Column("first_base", sa.BigInteger, nullable=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("n", sa.Integer, nullable=False),
        sa.Column("blob", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.Text, primary_key=True),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("key_hash", sa.Text, nullable=False, unique=True),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
    )
