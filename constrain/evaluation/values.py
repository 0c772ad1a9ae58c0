"""Values in a normal form, in which those that mean the same are equal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from datetime import datetime, time
from decimal import Decimal
from typing import Any

from constrain.arguments import check_type

#: Without leading zeros, which numbers do not have, but codes may.
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
#: How dates and times begin; those that ISO writes without signs may be codes.
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-|[0-9]{2}:")


def same(one: Any, other: Any, *, ignore_case: bool = False) -> bool:
    """Return whether two JSON scalars mean the same: numbers by value, dates and times by what they name.

    Strings that are numbers, dates or times in JSON's or ISO's form count as such. Other strings may differ in white
    space, in the Unicode normal form, and with ``ignore_case`` in case. Unlike in Python, true is not 1.
    """
    return bool(normal(one, ignore_case) == normal(other, ignore_case))


def normal(value: Any, ignore_case: bool = False) -> Any:
    """Return the normal form of a JSON scalar; those of two scalars are equal if they mean the same."""
    if value is None or isinstance(value, bool):
        return value, bool
    if isinstance(value, str):
        return _of_text(" ".join(unicodedata.normalize("NFC", value).split()), ignore_case)
    check_type("a value of a record", value, (int, float, Decimal), "JSON")
    return Decimal(str(value))


def _of_text(text: str, ignore_case: bool) -> Any:
    if _NUMBER.fullmatch(text):
        return Decimal(text)
    moment = _moment(text) if _MOMENT.match(text) else None
    if moment is not None:
        return moment
    return text.casefold() if ignore_case else text


def _moment(text: str) -> datetime | time | None:
    """Return the date or time that a text is, a date as its midnight; ``None`` if it is neither."""
    forms: list[Callable[[str], datetime | time]] = [datetime.fromisoformat, time.fromisoformat]
    for parse in forms:
        try:
            return parse(text.replace("Z", "+00:00"))
        except ValueError:
            continue
    return None
