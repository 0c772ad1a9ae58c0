"""Whether a regular expression bounds the length of the strings that match it."""

from __future__ import annotations

import re

#: An escape, a class of characters, an unbounded quantifier, or any other character.
_TOKEN = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{\d+,\}|.", re.DOTALL)
_UNBOUNDED = re.compile(r"[*+]|\{\d+,\}")


def bounds_length(pattern: str) -> bool:
    """Return whether a ``pattern`` of a JSON Schema matches whole strings of a limited length.

    Of patterns that do so in an unusual way, such as ``(^a$)``, it is not seen.
    """
    tokens = _TOKEN.findall(pattern)
    if any(map(_UNBOUNDED.fullmatch, tokens)):
        return False
    alternatives: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token == "(") - (token == ")")
        if token == "|" and not depth:
            alternatives.append([])
        else:
            alternatives[-1].append(token)
    return all(each[:1] == ["^"] and each[-1:] == ["$"] for each in alternatives)
