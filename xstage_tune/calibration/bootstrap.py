"""Seeded resampling: intervals that come out bit for bit the same for the same runs and seed."""

from __future__ import annotations

from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

REPLICATES = 400


def generator(seed: int, *names: object) -> np.random.Generator:
    """An independent random stream for one purpose, whatever else is drawn before it."""
    return np.random.default_rng([seed, crc32(repr(names).encode())])


def interval95(replicates: Floats) -> tuple[float, float]:
    """Percentile interval of bootstrap replicates, ``[replicates]``."""
    low, high = np.quantile(replicates, (0.025, 0.975))
    return float(low), float(high)


def resampled_quantiles(samples: Floats, quantile: float, rng: np.random.Generator) -> Floats:
    """A quantile of ``REPLICATES`` resamples of ``samples``, ``[REPLICATES]``."""
    drawn = rng.integers(len(samples), size=(REPLICATES, len(samples)))
    quantiles: Floats = np.quantile(samples[drawn], quantile, axis=1)
    return quantiles
