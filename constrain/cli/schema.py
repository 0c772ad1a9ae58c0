"""Messages of commands about a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from constrain.engine import Report


def warn_of_mistakes(report: Report) -> None:
    """Print a warning for each keyword that looks misspelled, and for a schema without any, on standard error."""
    from constrain.extract.mistakes import WITHOUT_EFFECT, mistakes

    is_empty = not (report.enforced or report.narrowed or report.ignored)
    for mistake in [*[WITHOUT_EFFECT] * is_empty, *mistakes(report)]:
        click.echo(f"warning: {mistake}", err=True)
