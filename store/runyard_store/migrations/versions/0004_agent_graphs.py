"""What each template of an Agent serves, so that it is known while no pod is up."""

import sqlalchemy as sa
from alembic import op

from runyard_store.column_types import JsonText, UtcDateTime

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "agent_graphs",
        sa.Column("agent_name", sa.Text, primary_key=True),
        sa.Column("template_hash", sa.Text, primary_key=True),
        sa.Column("graphs", JsonText, nullable=False),
        sa.Column("updated_at", UtcDateTime, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("agent_graphs")
