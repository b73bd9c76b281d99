"""Orders of launches that are compared: nothing may always come first, or always behind the same."""

from __future__ import annotations

from collections.abc import Sequence


def rotated(count: int, by: int) -> Sequence[int]:
    """``count`` numbers from 0 in turn, beginning with ``by``."""
    return [(by + place) % count for place in range(count)]


def balanced(count: int, repeat: int) -> Sequence[int]:
    """``count`` numbers from 0, in repeat ``repeat`` of a balanced design (Williams, 1949).

    Over ``count`` repeats, twice as many where it is odd, each number comes equally often at each place and
    directly behind each other one. A launch inherits the clocks and the temperature of the one before it, so
    a rotation, which leaves every one its neighbour, favours what follows something cool.
    """
    zigzag = [(place + 1) // 2 if place % 2 else -(place // 2) for place in range(count)]
    if count % 2 and repeat // count % 2:
        zigzag.reverse()
    return [(repeat + step) % count for step in zigzag]
