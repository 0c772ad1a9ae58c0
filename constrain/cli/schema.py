"""Messages of commands about a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from constrain.engine import Report


def warn_of_mistakes(report: Report) -> None:
    """Print a warning for each keyword that looks misspelled, and for a schema without any, on standard error."""
    if not (report.enforced or report.narrowed):
        click.echo('warning: no keyword of the schema has an effect; fields are named in "properties"', err=True)
    for entry in report.ignored:
        if "did you mean" in entry.note:
            click.echo(f"warning: {entry.document}#{entry.pointer} ({entry.keyword}): {entry.note}", err=True)
