"""Keywords of schemas that look misspelled: a schema ignores what it does not know."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from constrain.engine import Report


class SchemaWarning(UserWarning):
    """A keyword or a format of a schema has no effect, and looks misspelled."""


def mistakes(report: Report) -> list[str]:
    """Return a message for each keyword, or format, that looks misspelled."""
    return [
        f"{entry.document}#{entry.pointer} ({entry.keyword}): {entry.note}"
        for entry in report.ignored
        if "did you mean" in entry.note
    ]


def warn_of_mistakes(report: Report) -> None:
    """Give a :class:`SchemaWarning` for each keyword, or format, that looks misspelled."""
    for mistake in mistakes(report):
        warnings.warn(mistake, SchemaWarning, stacklevel=2)
