"""The template of a platform profile."""

from __future__ import annotations

from xstage_tune.base.profile_templates import checked_template
from xstage_tune.platforms.schema import TEMPLATE_SOURCE, PlatformProfile

_HEADING = (
    "A platform, for xstage-tune: a GPU, and how fast its stores leave it. The values are examples, and not "
    "measured: xstage-tune calibrate measures them and writes such a file itself."
)


def platform_template(name: str) -> str:
    """A commented platform profile called ``name``, as TOML that loads and that audit and search can use.

    Raises:
        UsageError: a platform cannot be called so.
    """
    return checked_template(
        PlatformProfile,
        _HEADING,
        name,
        values={"*.source": TEMPLATE_SOURCE},
        given=("capacity", "compute", "compute.attention"),
    )
