"""``constrain new-plugin``: the folder of a package that adds a filter."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from string import Template

import click

#: The name of constrain on the package index, where its own name belongs to another project.
DISTRIBUTION = "constrain-lm"

#: Templates of the files, by the names that these get.
_FILES = {
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
    "$module.py": "module.py.txt",
    "test_$module.py": "test_module.py.txt",
}


class PluginName(click.ParamType[str]):
    """The name of a filter: lower-case words with hyphens between them."""

    name = "NAME"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", value):
            self.fail(f"{value!r} is no name such as 'letters' or 'even-numbers'", param, ctx)
        return value


@click.command("new-plugin")
@click.argument("name", type=PluginName())
def new_plugin(name: str) -> None:
    """Make a folder constrain-NAME with a package that adds the filter NAME.

    It works as it is: its tests pass, and once it is installed, the filter is found. So what it allows can be changed
    step by step.
    """
    from constrain.filters import available

    for info in available():
        if info.name == name:
            raise click.ClickException(f"{info.origin} has a filter {name!r} already")
    folder = Path(f"constrain-{name}")
    try:
        folder.mkdir()
        for path, content in plugin_files(name).items():
            (folder / path).write_text(content, encoding="utf-8")
    except FileExistsError as error:
        raise click.ClickException(f"{folder} is there already") from error
    except OSError as error:
        raise click.ClickException(f"{folder} cannot be written: {(error.strerror or str(error)).lower()}") from error
    click.echo(f"{folder} is ready: cd {folder}; pip install -e '.[test]'; pytest")


def plugin_files(name: str) -> dict[str, str]:
    """Return the files of a plugin by name."""
    values = {
        "name": name,
        "module": f"constrain_{name.replace('-', '_')}",
        "class": f"{name.title().replace('-', '')}Filter",
        "distribution": DISTRIBUTION,
    }
    templates = files("constrain.cli") / "plugin_template"
    return {
        Template(path).substitute(values): Template((templates / template).read_text("utf-8")).substitute(values)
        for path, template in _FILES.items()
    }
