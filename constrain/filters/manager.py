"""Discovery of filters in installed packages, and creation of filters by name."""

from __future__ import annotations

import inspect
import os
import traceback
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

import pluggy

from constrain.errors import PluginError
from constrain.filters import hookspecs
from constrain.filters.hookspecs import PROJECT, FilterFactory

if TYPE_CHECKING:
    from constrain.tokenizer import ExLlamaV2Tokenizer

GROUP = "constrain.filters"
ENVIRONMENT_VARIABLE = "CONSTRAIN_PLUGINS"


@dataclass(frozen=True)
class FilterInfo:
    """A filter that can be created by name.

    Attributes:
        name: its name for :func:`create`.
        plugin: name of its entry point.
        origin, version: name and version of its distribution.
        signature: its own arguments, as text.
    """

    name: str
    plugin: str
    origin: str
    version: str
    signature: str
    factory: FilterFactory = field(repr=False)


@dataclass(frozen=True)
class BrokenPlugin:
    """A plugin that was skipped.

    Attributes:
        name: name of its entry point.
        origin, version: name and version of its distribution.
        error: the reason.
    """

    name: str
    origin: str
    version: str
    error: str


class FilterManager:
    """The filters of a set of entry points.

    A plugin that cannot be used is skipped with a warning, and listed in :attr:`broken`.

    Args:
        points: entry points, in the order of loading; the first with a name of a filter has it.
    """

    def __init__(self, points: Iterable[EntryPoint]) -> None:
        self.filters: dict[str, FilterInfo] = {}
        self.broken: list[BrokenPlugin] = []
        self._pluggy = pluggy.PluginManager(PROJECT)
        self._pluggy.add_hookspecs(hookspecs)
        for point in points:
            self._add(point)

    def create(self, name: str, model: Any, tokenizer: ExLlamaV2Tokenizer, **arguments: Any) -> Any:
        """Create a filter; see :func:`create`."""
        info = self.find(name)
        try:
            inspect.signature(info.factory).bind(model, tokenizer, **arguments)
        except TypeError as error:
            raise PluginError(f"filter {name!r} takes {info.signature}: {error}") from error
        return info.factory(model, tokenizer, **arguments)

    def find(self, name: str) -> FilterInfo:
        """Return the filter of a name; see :func:`find`."""
        if not isinstance(name, str) or name not in self.filters:
            raise PluginError(self._unknown(name))
        return self.filters[name]

    def _add(self, point: EntryPoint) -> None:
        origin, version = _distribution(point)
        try:
            offered = self._load(point)
            infos = [
                FilterInfo(name, point.name, origin, version, _own_signature(factory), factory)
                for name, factory in offered.items()
            ]
        except (Exception, SystemExit) as error:  # plugins may raise anything, and must not stop the program
            named = isinstance(error, PluginError)
            reason = str(error) if named else "".join(traceback.format_exception_only(error)).strip()
            self.broken.append(BrokenPlugin(point.name, origin, version, reason))
            warnings.warn(f"plugin {point.name!r} of {origin} {version} is skipped: {reason}", stacklevel=2)
            return
        self.filters.update((info.name, info) for info in infos)

    def _load(self, point: EntryPoint) -> Mapping[str, FilterFactory]:
        plugin = point.load()
        self._pluggy.register(plugin, point.name)
        hook = self._pluggy.hook.constrain_filters
        functions = [impl.function for impl in hook.get_hookimpls() if impl.plugin is plugin]
        if not functions:
            raise PluginError(f"{point.value} has no function constrain_filters marked with hookimpl")
        offered = functions[0]()
        if not isinstance(offered, Mapping):
            raise PluginError(f"constrain_filters() must return names and factories, not {type(offered).__name__}")
        for name, factory in offered.items():
            if not isinstance(name, str) or not callable(factory):
                raise PluginError(f"constrain_filters() must map names to factories, not {name!r} to {factory!r}")
            if name in self.filters:
                raise PluginError(f"{self.filters[name].origin} offers a filter {name!r} already")
        return offered

    def _unknown(self, name: str) -> str:
        text = f"no filter is called {name!r}; there are {', '.join(sorted(self.filters)) or 'none'}"
        if self.broken:
            skipped = "; ".join(f"{plugin.name}: {plugin.error}" for plugin in self.broken)
            text += f". Plugins that could not be loaded: {skipped}"
        if ENVIRONMENT_VARIABLE in os.environ:
            text += f". {ENVIRONMENT_VARIABLE}={os.environ[ENVIRONMENT_VARIABLE]} keeps out other plugins"
        return text


def create(name: str, model: Any, tokenizer: ExLlamaV2Tokenizer, **arguments: Any) -> Any:
    """Create a filter by name.

    Args:
        name: one of :func:`available`.
        model: the model whose tokens are filtered.
        tokenizer: its tokenizer.
        arguments: the filter's own arguments.

    Raises:
        PluginError: there is no such filter, or it does not take these arguments.
    """
    return _installed().create(name, model, tokenizer, **arguments)


def find(name: str) -> FilterInfo:
    """Return the filter of a name.

    Raises:
        PluginError: there is no such filter.
    """
    return _installed().find(name)


def available() -> list[FilterInfo]:
    """Return all filters for :func:`create`, sorted by name."""
    return sorted(_installed().filters.values(), key=lambda info: info.name)


def broken() -> list[BrokenPlugin]:
    """Return the installed plugins that could not be loaded."""
    return list(_installed().broken)


@cache
def _installed() -> FilterManager:
    return FilterManager(selected(entry_points(group=GROUP), os.environ.get(ENVIRONMENT_VARIABLE)))


def selected(points: Iterable[EntryPoint], wanted: str | None) -> list[EntryPoint]:
    """Select the entry points to load: those of constrain first, then the requested ones of other packages.

    Args:
        points: the installed entry points.
        wanted: ``None`` for all, ``"none"`` for none, or names separated by commas.
    """
    names = None if wanted is None else {name.strip() for name in wanted.split(",")}
    points = sorted(points, key=lambda point: (_distribution(point)[0], point.name))
    own = [point for point in points if _is_own(point)]
    others = [point for point in points if not _is_own(point)]
    return own + [point for point in others if names is None or point.name in names]


def _is_own(point: EntryPoint) -> bool:
    return point.module.partition(".")[0] == PROJECT


def _distribution(point: EntryPoint) -> tuple[str, str]:
    return (point.dist.name, point.dist.version) if point.dist is not None else ("unknown", "")


class _Bare(str):
    """A string whose ``repr`` has no quotes, for annotations that are strings."""

    __repr__ = str.__str__


def _own_signature(factory: FilterFactory) -> str:
    """Return the signature of a factory without model and tokenizer."""
    signature = inspect.signature(factory)
    own = [
        p.replace(annotation=_Bare(p.annotation)) if isinstance(p.annotation, str) else p
        for p in list(signature.parameters.values())[2:]
    ]
    return str(signature.replace(parameters=own, return_annotation=inspect.Signature.empty))
