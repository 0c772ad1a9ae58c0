"""What is public is documented: names, members, hooks, commands, options, errors. The site builds without a warning."""

from __future__ import annotations

import inspect
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from sphinx.application import Sphinx

import constrain
import constrain.engine
import constrain.errors
import constrain.extract
import constrain.filters
import constrain.generator
from constrain.cli.main import BUILT_IN, cli
from constrain.filters import hookspecs

DOCS = Path(__file__).parents[2] / "docs"
PACKAGES = [constrain, constrain.engine, constrain.extract, constrain.filters, constrain.generator]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[set[str], str]]:
    """Every Python name that the site documents, and the warnings of its build."""
    out, warnings = tmp_path_factory.mktemp("site"), io.StringIO()
    app = Sphinx(str(DOCS), str(DOCS), str(out), str(out / "trees"), "dummy", status=None, warning=warnings)
    app.build()
    yield set(app.env.domaindata["py"]["objects"]), warnings.getvalue()
    sys.path.remove(str(DOCS))


def public(package: ModuleType) -> list[Any]:
    """The classes and functions that a package exports (aliases of types and constants have no page of their own)."""
    found = [getattr(package, name) for name in package.__all__]
    return [thing for thing in found if inspect.isclass(thing) or inspect.isfunction(thing)]


def full_name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


def members(cls: type) -> list[str]:
    """The public methods and properties that a class of constrain defines itself."""
    return [
        f"{full_name(cls)}.{name}"
        for name, value in vars(cls).items()
        if not name.startswith("_") and (inspect.isroutine(value) or isinstance(value, property))
    ]


def test_the_site_builds_without_warnings(site: tuple[set[str], str]) -> None:
    assert not site[1]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_public_names_are_documented(site: tuple[set[str], str], package: ModuleType) -> None:
    wanted = {full_name(thing) for thing in public(package)}
    wanted |= {name for thing in public(package) if inspect.isclass(thing) for name in members(thing)}
    assert not {name for name in wanted if name.startswith("constrain.")} - site[0]


def test_errors_are_documented(site: tuple[set[str], str]) -> None:
    errors = [value for value in vars(constrain.errors).values() if inspect.isclass(value)]
    assert len(errors) > 10
    assert not set(map(full_name, errors)) - site[0]


def test_hooks_are_documented(site: tuple[set[str], str]) -> None:
    hooks = [full_name(value) for value in vars(hookspecs).values() if hasattr(value, "constrain_spec")]
    assert hooks
    assert not set(hooks) - site[0]


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_commands_and_options_are_documented(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    from click_help import help_of

    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.help
    shown = help_of(name)
    for param in command.params:
        if isinstance(param, click.Option):
            assert param.help, f"{name} {param.opts} has no help"
            assert param.opts[0] in shown
