"""What commands say of a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from constrain.engine import Report


def warn_of_misspelled(report: Report) -> None:
    """Print a warning for each keyword that looks misspelled, on standard error."""
    for entry in report.ignored:
        if "did you mean" in entry.note:
            click.echo(f"warning: {entry.document}#{entry.pointer} ({entry.keyword}): {entry.note}", err=True)
