"""FlashAttention whose output tiles leave as the Ulysses All-to-All."""
