"""JSON pointer to the end of an incomplete JSON document."""

from __future__ import annotations

import json
import re

from constrain.engine.pointers import pointer

#: A string, which may be incomplete, or a structural character.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*("?)|[{}\[\],:]', re.DOTALL)


def json_place(text: str) -> str:
    """Return the JSON pointer to the value in which an incomplete JSON document ends.

    If an object expects a key there, this is the object.
    """
    path: list[str | int | None] = []  # of each open array the index, of each open object the key, once it is complete
    key = ""
    for token in _TOKEN.finditer(text):
        symbol = token[0]
        if symbol == "{":
            path.append(None)
        elif symbol == "[":
            path.append(0)
        elif symbol in ("}", "]"):
            path = path[:-1]
        elif symbol == "," and path:
            index = path.pop()
            path.append(index + 1 if isinstance(index, int) else None)
        elif symbol == ":" and path:
            path[-1] = key
        elif token[1]:
            key = json.loads(symbol, strict=False)
    return pointer(step for step in path if step is not None)
