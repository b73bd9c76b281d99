"""Which process searches a study, so that no two do."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "study_holder",
        sa.Column("study_id", sa.String(), nullable=False),
        sa.Column("since", sa.String(), nullable=False),
        sa.Column("seen_at", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("pid_namespace", sa.String(), nullable=False),
        sa.Column("process_start_ticks", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("study_id", name=op.f("pk_study_holder")),
        sa.ForeignKeyConstraint(
            ["study_id"], ["study.id"], name=op.f("fk_study_holder_study_id_study"), ondelete="CASCADE"
        ),
    )
