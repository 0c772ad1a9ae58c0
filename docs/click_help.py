"""The directive ``click-help``: the ``--help`` of every command, a section each."""

from __future__ import annotations

import click
from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

from constrain.cli.group import BUILT_IN, cli


def help_of(name: str) -> str:
    """Return what ``constrain NAME --help`` prints, 100 columns wide."""
    parent = click.Context(cli, info_name="constrain", **cli.context_settings)
    command: click.Command = cli
    for word in name.split():
        assert isinstance(command, click.Group)
        found = command.get_command(parent, word)
        assert found is not None
        command = found
    return command.get_help(click.Context(command, parent, name, terminal_width=100))


def command_names() -> list[str]:
    """Return the built-in commands, each followed by those that it is a group of."""
    names = []
    for name in sorted(BUILT_IN):
        command = cli.get_command(click.Context(cli), name)
        names += [name, *(f"{name} {inner}" for inner in getattr(command, "commands", ()))]
    return names


class ClickHelp(Directive):
    """Renders the help of the built-in commands."""

    def run(self) -> list[nodes.Node]:
        """Return one section for each command."""
        return [self._section(name) for name in command_names()]

    def _section(self, name: str) -> nodes.section:
        title = f"constrain {name}"
        section = nodes.section(ids=[nodes.make_id(title)], names=[nodes.fully_normalize_name(title)])
        section += nodes.title(text=title)
        section += nodes.literal_block(text=help_of(name))
        self.state.document.note_explicit_target(section)
        return section


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("click-help", ClickHelp)
    return {"parallel_read_safe": True}
