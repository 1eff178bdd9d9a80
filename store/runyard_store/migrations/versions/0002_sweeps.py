"""Indexes for what the gateway's sweeps look for: cancelled runs that haven't ended, and stateless runs that have."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

CANCELLED = sa.text("status IN ('pending', 'running') AND cancel_action IS NOT NULL")
TEMPORARY = sa.text("temporary AND ended_at IS NOT NULL")


def upgrade() -> None:
    op.create_index("runs_cancelled", "runs", ["created_at"], postgresql_where=CANCELLED, sqlite_where=CANCELLED)
    op.create_index("runs_temporary", "runs", ["ended_at"], postgresql_where=TEMPORARY, sqlite_where=TEMPORARY)


def downgrade() -> None:
    op.drop_index("runs_temporary", "runs")
    op.drop_index("runs_cancelled", "runs")
