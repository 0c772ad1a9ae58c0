"""Validation of the arguments of requests, which needs no torch: abort events, seeds and stop conditions."""

from __future__ import annotations

import random
import threading
from collections.abc import Collection
from numbers import Integral
from typing import Any

from constrain.arguments import check_count, refused

_KEY_BITS = 63


def check_event(event: threading.Event | None, clear: bool = False) -> None:
    """Check an abort event, and with ``clear`` clear it; any class that has ``is_set`` and ``clear`` is accepted.

    Raises:
        ArgumentError: it lacks one of them.
    """
    if event is not None and not (hasattr(event, "is_set") and hasattr(event, "clear")):
        raise refused("abort_event", event, "a threading.Event")
    if clear and event is not None:
        event.clear()


def key_of(seed: int | None) -> int:
    """Return the key of the random numbers of a seed, taken from Python's ``random`` for ``None``.

    Raises:
        ArgumentError: the seed is not an integer.
    """
    if seed is None:
        return random.getrandbits(_KEY_BITS)
    check_count("seed", seed, minimum=None)
    return int(seed) % (1 << _KEY_BITS)


def split_stop_conditions(conditions: Collection[Any] | None) -> tuple[frozenset[int], list[str]]:
    """Split stop conditions into token ids and strings.

    Raises:
        ArgumentError: a condition is neither an id nor a string, a negative id, or an empty string.
    """
    if conditions is not None and not isinstance(conditions, (list, tuple, set, frozenset)):
        raise refused("stop conditions", conditions, "a list, tuple or set")
    tokens: set[int] = set()
    strings: list[str] = []
    for each in conditions or ():
        if isinstance(each, str) and each:
            strings.append(each)
        elif not isinstance(each, bool) and isinstance(each, Integral) and int(each) >= 0:
            tokens.add(int(each))
        else:
            raise refused("a stop condition", each, "an id, or a text that is not empty")
    return frozenset(tokens), strings
