"""The import hook of the alias: the modules of ``exllamav2``, and the metadata of its distribution."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from constrain.compat.exllamav2.names import MODULES, PACKAGES, VERSION
from constrain.errors import AliasError

NAME = "exllamav2"


class _Distribution(importlib.metadata.Distribution):
    """Metadata of the alias for ``importlib.metadata``, without files."""

    def read_text(self, filename: str) -> str | None:
        """Return the content of ``METADATA``, the only file."""
        return f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n" if filename == "METADATA" else None

    def locate_file(self, path: object) -> Path:
        """Return the path of a file, which need not exist."""
        return Path(__file__).parent / str(path)


class _Finder(importlib.metadata.DistributionFinder, Loader):
    """Finds the modules of the alias, and creates them from the table of names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module of the alias, if there is one of this name."""
        package, _, name = fullname.partition(".")
        if package != NAME or name not in MODULES:
            return None
        return ModuleSpec(fullname, self, origin=__name__, is_package=name in PACKAGES)

    def create_module(self, spec: ModuleSpec) -> None:
        """Return ``None``, for an ordinary empty module."""

    def exec_module(self, module: ModuleType) -> None:
        """Fill a module with its names."""
        for name, (home, attribute) in MODULES[module.__name__.partition(".")[2]].items():
            setattr(module, name, getattr(importlib.import_module(home), attribute))

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterator[importlib.metadata.Distribution]:
        """Yield the distribution of the alias, if its name or no name is given."""
        if context is None or context.name is None or context.name.lower() == NAME:
            yield _Distribution()


_finder = _Finder()


def install(replace: bool = False) -> None:
    """Install the alias: ``import exllamav2`` imports constrain's classes, and its version is 0.3.2.

    Does nothing if the alias is installed already.

    Args:
        replace: install the alias even if a real exllamav2 is installed, which cannot be imported until
            :func:`uninstall`.

    Raises:
        AliasError: a real exllamav2 is installed and ``replace`` is not set, or it has been imported.
    """
    if _finder in sys.meta_path:
        return
    if NAME in sys.modules:
        raise AliasError("exllamav2 has been imported already; install the alias before anything imports it")
    if not replace and _real_is_installed():
        raise AliasError("a real exllamav2 is installed; constrain takes its name only with install(replace=True)")
    sys.meta_path.insert(0, _finder)


def uninstall() -> None:
    """Remove the alias. Names that have been imported from it stay valid."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
        for name in [name for name in sys.modules if name.split(".")[0] == NAME]:
            del sys.modules[name]


def _real_is_installed() -> bool:
    spec = importlib.util.find_spec(NAME)
    # A folder of that name on the path without __init__.py would be a namespace package, which has no origin.
    return spec is not None and spec.origin is not None
