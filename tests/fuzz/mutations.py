"""Valid keys and bytes, changed here and there into what is wrong, extreme or meant to do harm."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from random import Random
from typing import Any

#: What a value becomes.
HOSTILE: tuple[Any, ...] = (
    *(0, -1, 1, 2, 3, 7, 127, 128, 129, 255, 256, 4095, 65_535, 65_536, 10**6, 10**7, 2**31 - 1, 2**31),
    *(2**32, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 10**400, True, False),
    *(0.0, -0.0, 1e-320, 1e-30, 0.1, 0.5, 0.999999, 1.5, 1e3, 1e9, 1e15, 1e18, 1e30, 1e300, 1e308, -1.0),
    *(
        float("inf"),
        float("-inf"),
        float("nan"),
        "",
        " ",
        "x",
        "nan",
        "1",
        "default",
        "../..",
        "a/b",
        "/dev/zero",
    ),
    *(
        "\x1b[31mred\x1b[0m",
        "\x00",
        "a\nb",
        "\u202egnp",
        "é\U0001f600",
        "x" * 5000,
        "<script>",
        "%s{0}",
        "class",
    ),
    *([], {}, [[]], [{}], [0] * 50, {"kind": "moe"}, {"": 0}, [1, "a", None]),
)
_SNIPPETS = (
    *(b"[", b"{", b'"', b"'", b"#", b"\\", b"\x00", b"\xff", b"\xed\xa0\x80", b"\r", b"=", b",", b"}" * 9),
    *(b"[" * 200, b'{"a":' * 100, b"a." * 500, b"9" * 5000, b"0x" + b"f" * 9000, b"1e999", b"nan", b"-inf"),
    *(b'"""', b"'''", b"\xef\xbb\xbf", b"1979-05-27T07:32:00Z", b"\\u0000", b"\\ud800", b"x" * 70_000),
)

#: That are chosen from; lists that were repeated twice have millions.
_MOST_PLACES = 20_000


def mutated_keys(random: Random, keys: dict[str, Any], *, plain: bool = True) -> dict[str, Any]:
    """A copy with one to four changes.

    Args:
        plain: only what TOML can write.
    """
    changed = copy.deepcopy(keys)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        places = list(islice(_places(changed), _MOST_PLACES))
        if not places:
            break
        holder, key = random.choice(places)
        _change(random, holder, key, plain)
    return changed


def mutated_bytes(random: Random, data: bytes) -> bytes:
    """A copy with one to eight changes of a few bytes."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        at = random.randrange(len(changed) + 1)
        end = min(len(changed), at + random.choice((1, 1, 2, 4, 30, 300)))
        match random.randrange(7):
            case 0 | 1 if at < len(changed):
                changed[at] ^= 1 << random.randrange(8)
            case 2:
                changed[at:end] = random.randbytes(end - at)
            case 3:
                del changed[at:end]
            case 4:
                changed[at:at] = changed[at:end] * random.choice((1, 2, 50))
            case 5:
                changed[at:at] = random.choice(_SNIPPETS)
            case 6 if random.random() < 0.3:
                del changed[at:]
    return bytes(changed)


def _places(keys: Any) -> Iterator[tuple[Any, Any]]:
    """Every dictionary or list with each of its keys."""
    rest = [keys]
    while rest:
        holder = rest.pop()
        for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
            yield holder, key
            if isinstance(holder[key], dict | list):
                rest.append(holder[key])


def _change(random: Random, holder: Any, key: Any, plain: bool) -> None:
    value = holder[key]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match random.randrange(8):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[random.choice(("x", key[:-1], key + "s", "kind", "a\x1b[2Jb", "é"))] = holder.pop(key)
        case 2 if isinstance(value, list) and value:
            holder[key] = value * random.choice((2, 30, 1000)) if len(value) < 100 else value[:1]
        case 3 if number:
            with suppress(OverflowError):
                holder[key] = type(value)(value * random.choice((-1, 0, 0.5, 2, 10, 1e3, 1e9, 1e-9, 1e300)))
        case 4 if number:
            with suppress(OverflowError):
                holder[key] = value + random.choice((-1, 1, 1e-9, 0.5))
        case 5:
            for _ in range(random.choice((3, 40, 60 if plain else 300))):
                value = {"a": value} if random.random() < 0.5 else [value]
            holder[key] = value
        case _:
            hostile = copy.deepcopy(random.choice(HOSTILE))
            holder[key] = "none" if plain and hostile == [1, "a", None] else hostile
