"""What a failed trial comes under, and all that was measured of one that ran."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trial", sa.Column("fault", sa.String(), nullable=True))
    op.add_column("trial", sa.Column("measured", sa.JSON(), nullable=True))
