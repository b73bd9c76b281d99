"""First schema: environments, runs, launches with their chunks, fits, studies, trials, exports."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "environment",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("identity_sha256", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("system", sa.String(), nullable=False),
        sa.Column("device_kind", sa.String(), nullable=False),
        sa.Column("gpu_name", sa.String(), nullable=False),
        sa.Column("gpu_uuid", sa.String(), nullable=False),
        sa.Column("driver", sa.String(), nullable=False),
        sa.Column("cuda", sa.String(), nullable=False),
        sa.Column("nvrtc", sa.String(), nullable=False),
        sa.Column("torch", sa.String(), nullable=False),
        sa.Column("device", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_environment")),
        sa.UniqueConstraint("identity_sha256", name=op.f("uq_environment_identity_sha256")),
    )
    op.create_table(
        "study",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.Column("finished_at", sa.String(), nullable=True),
        sa.Column("workload", sa.String(), nullable=False),
        sa.Column("workload_sha256", sa.String(), nullable=False),
        sa.Column("platform", sa.String(), nullable=False),
        sa.Column("platform_sha256", sa.String(), nullable=False),
        sa.Column("space", sa.JSON(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("objective", sa.String(), nullable=False),
        sa.Column("sampler", sa.String(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "status IN ('running', 'finished', 'failed', 'interrupted')", name=op.f("ck_study_status")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_study")),
    )
    op.create_index(op.f("ix_study_workload_sha256"), "study", ["workload_sha256"])
    op.create_table(
        "export",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_id", sa.String(), nullable=False),
        sa.Column("format", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["study_id"], ["study.id"], name=op.f("fk_export_study_id_study"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_export")),
    )
    op.create_index(op.f("ix_export_study_id"), "export", ["study_id"])
    op.create_table(
        "run",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("environment_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("started_at", sa.String(), nullable=False),
        sa.Column("finished_at", sa.String(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("argv", sa.JSON(), nullable=False),
        sa.Column("tool_version", sa.String(), nullable=False),
        sa.Column("git_state", sa.String(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=True),
        sa.Column("parameters", sa.JSON(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("kernel_sha256", sa.String(), nullable=False),
        sa.Column("profile_sha256", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("pid_namespace", sa.String(), nullable=False),
        sa.Column("process_start_ticks", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "status IN ('running', 'finished', 'failed', 'interrupted', 'stale')", name=op.f("ck_run_status")
        ),
        sa.ForeignKeyConstraint(
            ["environment_id"], ["environment.id"], name=op.f("fk_run_environment_id_environment")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
    )
    op.create_index(op.f("ix_run_kind_started_at"), "run", ["kind", "started_at"])
    op.create_table(
        "fit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_fit_run_id_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_fit")),
    )
    op.create_index(op.f("ix_fit_run_id"), "fit", ["run_id"])
    op.create_table(
        "launch",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("mode", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("flavour", sa.String(), nullable=False),
        sa.Column("producers", sa.BigInteger(), nullable=False),
        sa.Column("burst_bytes", sa.BigInteger(), nullable=False),
        sa.Column("gap_ns", sa.BigInteger(), nullable=False),
        sa.Column("point", sa.JSON(), nullable=False),
        sa.Column("kernel", sa.String(), nullable=False),
        sa.Column("kernel_sha256", sa.String(), nullable=False),
        sa.Column("registers", sa.BigInteger(), nullable=False),
        sa.Column("spill_bytes", sa.BigInteger(), nullable=False),
        sa.Column("shared_bytes", sa.BigInteger(), nullable=False),
        sa.Column("timer_tick_ns", sa.BigInteger(), nullable=False),
        sa.Column("elapsed_ns", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.String(), nullable=False),
        sa.Column("gpu_before", sa.JSON(), nullable=True),
        sa.Column("gpu_after", sa.JSON(), nullable=True),
        sa.Column("checked_bytes", sa.BigInteger(), nullable=False),
        sa.Column("mismatched_bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name=op.f("fk_launch_run_id_run"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_launch")),
        sa.UniqueConstraint("run_id", "sequence", name=op.f("uq_launch_run_id_sequence")),
    )
    op.create_index(
        op.f("ix_launch_point"), "launch", ["mode", "path", "flavour", "producers", "burst_bytes", "gap_ns"]
    )
    op.create_table(
        "trial",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.Column("objective_ns", sa.Float(53), nullable=True),
        sa.Column("bound_ns", sa.Float(53), nullable=True),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("verification", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.CheckConstraint("state IN ('complete', 'pruned', 'failed', 'cut')", name=op.f("ck_trial_state")),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name=op.f("fk_trial_run_id_run"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["study_id"], ["study.id"], name=op.f("fk_trial_study_id_study"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trial")),
        sa.UniqueConstraint("study_id", "number", name=op.f("uq_trial_study_id_number")),
    )
    op.create_index(op.f("ix_trial_run_id"), "trial", ["run_id"])
    op.create_table(
        "chunk",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("launch_id", sa.Integer(), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("codec", sa.String(), nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("blob", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("kind IN ('spans', 'lanes')", name=op.f("ck_chunk_kind")),
        sa.ForeignKeyConstraint(
            ["launch_id"], ["launch.id"], name=op.f("fk_chunk_launch_id_launch"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_chunk")),
        sa.UniqueConstraint("launch_id", "rank", "kind", name=op.f("uq_chunk_launch_id_rank_kind")),
    )
