"""The command line ``constrain``."""

from constrain.cli.main import Commands, cli, main

__all__ = ["Commands", "cli", "main"]
