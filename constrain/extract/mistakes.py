"""Keywords of schemas that look misspelled, and schemas without any: a schema ignores what it does not know."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from constrain.engine import Report


#: Message for a schema that allows any JSON.
WITHOUT_EFFECT = 'no keyword of the schema has an effect; fields are named in "properties"'


class SchemaWarning(UserWarning):
    """A keyword or a format of a schema has no effect, and looks misspelled, or nothing in the schema has."""


def mistakes(report: Report) -> list[str]:
    """Return a message for each keyword, or format, that looks misspelled, and for a schema without any keyword."""
    found = [
        f"{entry.document}#{entry.pointer} ({entry.keyword}): {entry.note}"
        for entry in report.ignored
        if "did you mean" in entry.note
    ]
    if report.ignored and not (report.enforced or report.narrowed):
        found.insert(0, WITHOUT_EFFECT)
    return found


def warn_of_mistakes(report: Report) -> None:
    """Give a :class:`SchemaWarning` for each message of :func:`mistakes`."""
    for mistake in mistakes(report):
        warnings.warn(mistake, SchemaWarning, stacklevel=2)
