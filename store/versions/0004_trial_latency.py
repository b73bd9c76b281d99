"""The launch's time of a trial beside its objective, which may be another quantity."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trial", sa.Column("latency_ns", sa.Float(53), nullable=True))
