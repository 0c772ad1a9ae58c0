"""The ``constrain`` command line."""

from constrain.cli.group import Commands, cli, main

__all__ = ["Commands", "cli", "main"]
