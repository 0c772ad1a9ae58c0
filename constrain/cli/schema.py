"""Messages of commands about a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from constrain.engine import Report


def warn_of_mistakes(report: Report) -> None:
    """Print a warning for each keyword that looks misspelled, and for a schema without any, on standard error."""
    from constrain.extract.mistakes import mistakes

    if not (report.enforced or report.narrowed):
        click.echo('warning: no keyword of the schema has an effect; fields are named in "properties"', err=True)
    for mistake in mistakes(report):
        click.echo(f"warning: {mistake}", err=True)
