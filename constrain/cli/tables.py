"""The console that tables are printed on."""

from __future__ import annotations

import os

from rich.console import Console

#: Columns where there is no terminal: nothing is gained by breaking the paths of a table that goes into a file.
_WIDTH = 240


def table_console() -> Console:
    """Return a console as wide as the terminal or ``COLUMNS``, and otherwise as wide as tables need."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=_WIDTH)
