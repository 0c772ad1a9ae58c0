"""The command group: the built-in commands, and those that other packages add by entry points."""

from __future__ import annotations

import os
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

import click

from constrain import __version__
from constrain.errors import ConstrainError

GROUP = "constrain.commands"

BUILT_IN = {
    "bench": "constrain.cli.bench:bench",
    "calibrate": "constrain.cli.calibrate:calibrate",
    "chat": "constrain.cli.chat:chat",
    "check-schema": "constrain.cli.check_schema:check_schema",
    "demo": "constrain.cli.demo:demo",
    "evaluate": "constrain.cli.evaluate:evaluate",
    "evaluate-model": "constrain.cli.evaluate_model:evaluate_model",
    "extract": "constrain.cli.extract:extract",
    "generate": "constrain.cli.generate:generate",
    "info": "constrain.cli.inspect:info",
    "new-plugin": "constrain.cli.new_plugin:new_plugin",
    "plugins": "constrain.cli.inspect:plugins",
    "profile-schema": "constrain.cli.profile_schema:profile_schema",
    "quantize": "constrain.cli.quantize:quantize",
    "review": "constrain.cli.review:review",
    "serve": "constrain.cli.serve:serve",
}


class Commands(click.Group):
    """A group whose commands are imported on first use.

    Other packages add commands by entry points of the group ``constrain.commands``, whose name is the command's and
    whose object is a :class:`click.Command`. They cannot replace built-in commands.
    """

    @cached_property
    def added(self) -> dict[str, EntryPoint]:
        """The entry points of other packages, by name."""
        return {point.name: point for point in entry_points(group=GROUP) if point.name not in BUILT_IN}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*BUILT_IN, *self.added})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in BUILT_IN:
            module, _, name = BUILT_IN[cmd_name].partition(":")
            command: click.Command = getattr(import_module(module), name)
            return command
        return _load(self.added[cmd_name]) if cmd_name in self.added else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            similar = get_close_matches(args[0], self.list_commands(ctx), 1)
            if not similar:
                raise
            raise click.UsageError(f"{error.message} Did you mean {similar[0]!r}?", error.ctx) from error

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ConstrainError as error:
            raise click.ClickException(str(error)) from error


def _load(point: EntryPoint) -> click.Command:
    """Return the command of an entry point, or one that only reports why it cannot be loaded."""
    try:
        command = point.load()
    except Exception as error:  # third-party code may raise anything, and must not break other commands
        return _broken(point, f"{type(error).__name__}: {error}")
    if not isinstance(command, click.Command):
        return _broken(point, f"{point.value} is not a click command")
    return command


def _broken(point: EntryPoint, why: str) -> click.Command:
    origin = point.dist.name if point.dist is not None else "an unknown package"
    message = f"the command {point.name!r} of {origin} cannot be used: {why}"

    def fail() -> None:
        raise click.ClickException(message)

    return click.Command(point.name, callback=fail, help=f"Not available: {message}.", add_help_option=False)


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """Constrained decoding: records, choices and texts that keep to the form you give.

    Packages add commands by the entry-point group constrain.commands.
    """


def main() -> None:
    """Run the command line with the arguments of this process."""
    # Must be set before torch is imported. Otherwise its idle OpenMP threads spin, which slows every model step down
    # when other programs compete for the CPU cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    cli(prog_name="constrain")
