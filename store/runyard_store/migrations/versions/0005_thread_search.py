"""Searching threads: the usual order, and a test for JSON that a document contains; runs that may not start yet."""

import sqlalchemy as sa
from alembic import op

from runyard_store.column_types import UtcDateTime

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# Values are kept as text because not every JSON document is a jsonb; one that isn't contains nothing.
CONTAINS = """
CREATE OR REPLACE FUNCTION runyard_contains(document text, wanted text) RETURNS boolean LANGUAGE plpgsql STABLE STRICT
AS $$
BEGIN
  RETURN document::jsonb @> wanted::jsonb;
EXCEPTION WHEN OTHERS THEN
  RETURN false;
END $$"""


def upgrade() -> None:
    op.add_column("runs", sa.Column("not_before", UtcDateTime))
    op.create_index("threads_by_creation", "threads", ["user_id", "created_at"])
    if op.get_bind().dialect.name == "postgresql":
        op.execute(CONTAINS)


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION runyard_contains(text, text)")
    op.drop_index("threads_by_creation", "threads")
    op.drop_column("runs", "not_before")
