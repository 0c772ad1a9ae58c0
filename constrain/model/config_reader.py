"""Typed and bounded access to a ``config.json``, which is untrusted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from constrain.errors import ConfigError

_REQUIRED: Any = object()


class ConfigReader:
    """Looks up keys in several objects in order, and checks types and bounds of values.

    The default replaces a value that is absent or null; without a default this is an error.

    Args:
        path: the file, for errors.
        sources: the objects; the first that has a key wins.
        where: prefix of the keys, for errors.
    """

    def __init__(self, path: Path, sources: Sequence[Mapping[str, Any]], where: str = "") -> None:
        self.path, self.sources, self.where = path, sources, where

    def error(self, key: str, problem: str) -> ConfigError:
        """Return an error that names file and key."""
        return ConfigError(f"{self.path}: {self.where}{key}: {problem}")

    def has(self, key: str) -> bool:
        """Whether a source has the key, null included."""
        return any(key in source for source in self.sources)

    def raw(self, key: str, default: Any = _REQUIRED) -> Any:
        """The value without checks."""
        for source in self.sources:
            if key in source:
                value = source[key]
                break
        else:
            value = None
        if value is not None:
            return value
        if default is _REQUIRED:
            raise self.error(key, "missing")
        return default

    def integer(self, key: str, default: Any = _REQUIRED, *, low: int = 1, high: int) -> Any:
        """An integer from ``low`` to ``high``; may be written as a float."""
        value = self.raw(key, default)
        if value is default:
            return value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(key, f"must be an integer, not {value!r}")
        if not low <= value <= high:
            raise self.error(key, f"must be from {low} to {high}, not {value}")
        return value

    def number(self, key: str, default: Any = _REQUIRED, *, low: float = 0.0, high: float = 1e12) -> Any:
        """A finite float above ``low``, up to ``high``."""
        value = self.raw(key, default)
        if value is default:
            return value
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise self.error(key, f"must be a number, not {value!r}")
        # Compared before conversion, since an integer may be too large for a float. NaN compares as false.
        if not low < value <= high:
            raise self.error(key, f"must be above {low:g} and at most {high:g}, not {value}")
        return float(value)

    def boolean(self, key: str, default: bool) -> bool:
        value = self.raw(key, default)
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {value!r}")
        return value

    def text(self, key: str, default: Any = _REQUIRED) -> Any:
        value = self.raw(key, default)
        if value is not default and not isinstance(value, str):
            raise self.error(key, f"must be a string, not {value!r}")
        return value

    def numbers(self, key: str, length: int) -> tuple[float, ...]:
        """``length`` finite numbers above zero."""
        values = self.raw(key)
        if not isinstance(values, list) or len(values) != length:
            raise self.error(key, f"must be a list of {length} numbers")
        items = ConfigReader(self.path, [{str(i): value for i, value in enumerate(values)}], f"{self.where}{key}/")
        return tuple(items.number(str(i)) for i in range(length))

    def integers(self, key: str) -> list[int]:
        """A list of integers; empty if the key is absent."""
        values = self.raw(key, [])
        if not isinstance(values, list) or not all(isinstance(item, int) for item in values):
            raise self.error(key, "must be a list of integers")
        return values

    def strings(self, key: str) -> list[str] | None:
        """A list of strings, or ``None`` if the key is absent."""
        values = self.raw(key, None)
        if values is not None and not (isinstance(values, list) and all(isinstance(item, str) for item in values)):
            raise self.error(key, "must be a list of strings")
        return values

    def section(self, key: str) -> ConfigReader:
        """A reader of the object under ``key``; empty if it is absent."""
        value = self.raw(key, {})
        if not isinstance(value, dict):
            raise self.error(key, f"must be an object, not {value!r}")
        return ConfigReader(self.path, [value], f"{self.where}{key}.")

    def sections(self) -> Iterator[ConfigReader]:
        """Readers of all objects here, which have to be objects."""
        for source in self.sources:
            yield from (self.section(key) for key in source)
