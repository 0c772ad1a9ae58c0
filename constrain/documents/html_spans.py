"""Gaps between the spans of HTML pages: styles, which are not read, set many of them apart without a space."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lxml.html import HtmlElement

#: The end of a text and the first character of the next where they belong together: at punctuation, in amounts, dates
#: and addresses.
_JOINED = re.compile(
    r"""
    .?\s. | .{1,2}\s                  # there is a gap already
    | .?.[.,;:!?%)\]}…’”»]            # before marks that follow on a word
    | .?[(\[{„“«$€£¥].                # after marks that precede one
    | .?[-–/@#_'’]. | .?.[-/@_'’]
    | \d[.,:]\d
    | .?[\u0e00-\u0eff\u3000-\u9fff\uf900-\ufaff\uff00-\uffef]{2}  # of scripts without spaces
    """,
    re.VERBOSE | re.DOTALL,
)


def separate_spans(tree: HtmlElement) -> None:
    """Write a space before and after spans, unless the texts there belong together, as in ``12<span>.50</span>``."""
    from lxml.etree import iterwalk

    before, is_border, depth = " ", False, 0
    for event, element in iterwalk(tree, events=("start", "end")):
        is_start = event == "start"
        depth += (element.tag == "pre") * (1 if is_start else -1)
        is_border = is_border or element.tag == "span"
        text = (element.text if is_start else element.tail) or ""
        if not text:
            continue
        if is_border and not depth and not _JOINED.fullmatch(before + text[0]):
            if is_start:
                element.text = f" {text}"
            else:
                element.tail = f" {text}"
        before, is_border = (before + text)[-2:], False
