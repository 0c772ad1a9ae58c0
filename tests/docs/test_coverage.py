"""Public names, members, hooks, commands, options and errors are documented; the site builds without a warning."""

from __future__ import annotations

import inspect
import io
import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from sphinx.application import Sphinx

import constrain
import constrain.chat
import constrain.compat.exllamav2
import constrain.completion
import constrain.documents
import constrain.engine
import constrain.errors
import constrain.evaluation
import constrain.extract
import constrain.filters
import constrain.generator
import constrain.integrations.continuous_batching
import constrain.integrations.llama_cpp
import constrain.integrations.mlx_lm
import constrain.integrations.outlines
import constrain.integrations.ray
import constrain.integrations.serving
import constrain.integrations.transformers
import constrain.llm
import constrain.model
import constrain.model_init
import constrain.quantization
import constrain.review
import constrain.runs
import constrain.serve
import constrain.testing
import constrain.tokenizer
from constrain.cli.group import BUILT_IN, cli
from constrain.filters import hookspecs
from constrain.model.architecture import ARCHITECTURES

# Sphinx and its extensions warn of changes to come in each other.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")

DOCS = Path(__file__).parents[2] / "docs"
PACKAGES = [
    constrain,
    constrain.chat,
    constrain.compat.exllamav2,
    constrain.completion,
    constrain.documents,
    constrain.engine,
    constrain.evaluation,
    constrain.extract,
    constrain.filters,
    constrain.generator,
    constrain.integrations.continuous_batching,
    constrain.integrations.llama_cpp,
    constrain.integrations.mlx_lm,
    constrain.integrations.outlines,
    constrain.integrations.ray,
    constrain.integrations.serving,
    constrain.integrations.transformers,
    constrain.llm,
    constrain.model,
    constrain.model_init,
    constrain.quantization,
    constrain.review,
    constrain.runs,
    constrain.serve,
    constrain.testing,
    constrain.tokenizer,
]


@dataclass(frozen=True)
class Site:
    """A built site: the Python names that it documents, and the warnings of its build."""

    names: frozenset[str]
    warnings: str

    def names_of(self, thing: object) -> list[str]:
        """The documented names, if any, under which ``thing`` can be found."""
        return [name for name in self.names if resolve(name) is thing]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    out, warnings = tmp_path_factory.mktemp("site"), io.StringIO()
    app = Sphinx(str(DOCS), str(DOCS), str(out), str(out / "trees"), "dummy", status=None, warning=warnings)
    app.build()
    sys.path.remove(str(DOCS))
    return Site(frozenset(app.env.domaindata["py"]["objects"]), warnings.getvalue())


@cache
def resolve(name: str) -> object:
    """Return the object of a dotted name, if it is a module or an attribute of one."""
    owner, _, attribute = name.rpartition(".")
    if hasattr(owner and resolve(owner), attribute):
        return getattr(resolve(owner), attribute)
    try:
        return import_module(name)
    except ImportError:
        return None


def public(package: ModuleType) -> list[Any]:
    """The classes and functions that a package exports (aliases of types and constants have no page of their own)."""
    found = [getattr(package, name) for name in package.__all__]
    return [thing for thing in found if inspect.isclass(thing) or inspect.isfunction(thing)]


def members(cls: type) -> list[str]:
    """The public methods and properties that a class defines itself."""
    return [
        name
        for name, value in vars(cls).items()
        if not name.startswith("_") and (inspect.isroutine(value) or isinstance(value, property))
    ]


def undocumented(site: Site, thing: Any) -> list[str]:
    names = site.names_of(thing)
    if not names:
        return [thing.__qualname__]
    wanted = members(thing) if inspect.isclass(thing) else []
    return [f"{names[0]}.{member}" for member in wanted if not any(f"{name}.{member}" in site.names for name in names)]


def test_the_site_builds_without_warnings(site: Site) -> None:
    assert not site.warnings


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_public_names_are_documented(site: Site, package: ModuleType) -> None:
    things = public(package)
    assert things
    assert not [name for thing in things for name in undocumented(site, thing)]


def test_architectures_are_documented() -> None:
    page = (DOCS / "howto" / "use-your-own-model.md").read_text()
    assert not [name for name in ARCHITECTURES if f"`{name}`" not in page]


def test_errors_are_documented(site: Site) -> None:
    errors = [value for value in vars(constrain.errors).values() if inspect.isclass(value)]
    assert len(errors) > 10
    assert not [name for error in errors for name in undocumented(site, error)]


def test_hooks_are_documented(site: Site) -> None:
    hooks = [value for value in vars(hookspecs).values() if hasattr(value, "constrain_spec")]
    assert hooks
    assert not [name for hook in hooks for name in undocumented(site, hook)]


def test_commands_and_options_are_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    from click_help import command_names, help_of

    assert {*BUILT_IN, "bench masks"} <= set(command_names())
    for name in command_names():
        command: Any = cli
        for word in name.split():
            command = command.get_command(click.Context(cli), word)
        assert command.help, f"{name} has no help"
        for param in command.params:
            if isinstance(param, click.Option):
                assert param.help, f"{name} {param.opts} has no help"
                assert param.opts[0] in help_of(name)
