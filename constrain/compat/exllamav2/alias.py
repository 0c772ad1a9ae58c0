"""The import hook that answers for ``exllamav2``: its modules, and the metadata of its distribution."""

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
    """What ``importlib.metadata`` finds of a package that has no files."""

    def read_text(self, filename: str) -> str | None:
        """The one file of metadata that every distribution has."""
        return f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n" if filename == "METADATA" else None

    def locate_file(self, path: object) -> Path:
        """Where a file would be."""
        return Path(__file__).parent / str(path)


class _Finder(importlib.metadata.DistributionFinder, Loader):
    """Finds the modules of the alias, and makes them of the table of names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The alias's module of this name, if it has one."""
        package, _, name = fullname.partition(".")
        if package != NAME or name not in MODULES:
            return None
        return ModuleSpec(fullname, self, origin=__name__, is_package=name in PACKAGES)

    def create_module(self, spec: ModuleSpec) -> None:
        """An ordinary, empty module."""

    def exec_module(self, module: ModuleType) -> None:
        """Fill a module with its names."""
        for name, (home, attribute) in MODULES[module.__name__.partition(".")[2]].items():
            setattr(module, name, getattr(importlib.import_module(home), attribute))

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterator[importlib.metadata.Distribution]:
        """The alias's distribution, where it or any is asked for."""
        if context is None or context.name is None or context.name.lower() == NAME:
            yield _Distribution()


_finder = _Finder()


def install(replace: bool = False) -> None:
    """Make ``import exllamav2`` give constrain's classes, and say that version 0.3.2 of it is installed.

    Does nothing where the alias is installed already.

    Args:
        replace: also where a real exllamav2 is installed, which then cannot be imported until :func:`uninstall`.

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
    """Take the alias away again. What programs have imported from it goes on working."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
        for name in [name for name in sys.modules if name.split(".")[0] == NAME]:
            del sys.modules[name]


def _real_is_installed() -> bool:
    spec = importlib.util.find_spec(NAME)
    # A folder of that name somewhere on the path, without an __init__.py, is no package: it has no origin.
    return spec is not None and spec.origin is not None
