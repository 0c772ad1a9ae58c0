"""Where in a JSON document its text is cut off."""

from __future__ import annotations

import json
import re

from constrain.engine.pointers import pointer

#: A string, which may be cut off; or a character of structure.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*("?)|[{}\[\],:]', re.DOTALL)


def json_place(text: str) -> str:
    """The JSON pointer to the value that is being written at the end of the beginning of a JSON document.

    Where an object expects a key, this is the object.
    """
    path: list[str | int | None] = []  # the index, or the key if it is known, in each open array or object
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
