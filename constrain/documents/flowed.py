"""Texts of e-mails whose lines flow (``format=flowed``, RFC 3676): one that ends with a space goes on in the next."""

from __future__ import annotations

import re
from collections.abc import Iterator

_QUOTED = re.compile(r"(>*) ?(.*)")
#: What stands above a signature: it ends with a space, and no line flows into it.
_SIGNATURE = "-- "


def unwrapped(text: str, del_sp: bool = False) -> str:
    """Return a text with each paragraph in one line.

    Args:
        text: the text as it was sent, with ``\\n`` at the ends of its lines.
        del_sp: whether the spaces at the ends of lines were added to mark them (``DelSp=yes``), as in languages that
            have no spaces between words.
    """
    return "\n".join(_paragraphs(text, del_sp))


def _paragraphs(text: str, del_sp: bool) -> Iterator[str]:
    begun: list[str] = []
    depth = 0
    for line in text.split("\n"):
        quoted = _QUOTED.fullmatch(line)
        marks, words = (quoted[1], quoted[2]) if quoted else ("", line)
        if begun and (len(marks) != depth or words == _SIGNATURE):
            yield _marked(depth, begun)
            begun = []
        depth = len(marks)
        if words.endswith(" ") and words != _SIGNATURE:
            begun.append(words[:-1] if del_sp else words)
            continue
        yield _marked(depth, [*begun, words])
        begun = []
    if begun:
        yield _marked(depth, begun)


def _marked(depth: int, lines: list[str]) -> str:
    """Return a paragraph behind the marks of its quotation."""
    text = "".join(lines)
    if text != _SIGNATURE:
        text = text.rstrip(" ")
    return f"{'>' * depth} {text}".rstrip(" ") if depth else text
