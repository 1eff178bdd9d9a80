"""API keys that were revoked stay in the table, with the time."""

import sqlalchemy as sa
from alembic import op

from runyard_store.column_types import UtcDateTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("revoked_at", UtcDateTime))


def downgrade() -> None:
    op.drop_column("api_keys", "revoked_at")
