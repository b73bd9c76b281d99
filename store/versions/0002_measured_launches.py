"""What a launch measured beside its spans: the figures of an emulated kernel."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("launch", sa.Column("measured", sa.JSON(), nullable=True))
