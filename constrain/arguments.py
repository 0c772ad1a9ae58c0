"""Checks of arguments where they come in, so that a mistake is named there, not by what it breaks further inside."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from reprlib import Repr
from typing import Any, TypeAlias

from constrain.errors import ArgumentError

#: Makes an exception of what is wrong.
Refusal: TypeAlias = Callable[[str], Exception]

_brief = Repr()
_brief.maxstring = _brief.maxother = 60


def check_type(
    name: str, value: Any, kinds: type | tuple[type, ...], wanted: str, error: Refusal = ArgumentError
) -> None:
    """Refuse what is of none of some types; ``wanted`` says in words what it has to be."""
    if not isinstance(value, kinds):
        raise refused(name, value, wanted, error)


def check_text(name: str, value: Any, error: Refusal = ArgumentError) -> None:
    """Refuse what is no text that has a spelling in UTF-8."""
    check_type(name, value, str, "a str", error)
    try:
        value.encode()
    except UnicodeEncodeError as cause:
        raise error(f"{name} is no text, because of a lone surrogate at index {cause.start}") from cause


def texts_of(name: str, value: Any, error: Refusal = ArgumentError) -> list[str]:
    """The texts of a collection of such. A single text is refused, whose characters would else be taken for texts."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise refused(name, value, "a list of texts", error)
    texts = list(value)
    for number, text in enumerate(texts):
        check_text(f"{name}[{number}]", text, error)
    return texts


def check_count(
    name: str, value: Any, least: int | None = 0, most: int | None = None, error: Refusal = ArgumentError
) -> None:
    """Refuse what is no whole number, or one out of bounds."""
    whole = int(value) if isinstance(value, Integral) else None
    if whole is None or (least is not None and whole < least) or (most is not None and whole > most):
        raise refused(name, value, f"a whole number{_bounds(least, most)}", error)


def check_number(
    name: str, value: Any, least: float = -math.inf, most: float = math.inf, error: Refusal = ArgumentError
) -> None:
    """Refuse what is no finite number, or one out of bounds."""
    if not (isinstance(value, Real) and math.isfinite(value) and least <= float(value) <= most):
        low, high = (None if math.isinf(bound) else bound for bound in (least, most))
        raise refused(name, value, f"a finite number{_bounds(low, high)}", error)


def refused(name: str, value: Any, wanted: str, error: Refusal = ArgumentError) -> Exception:
    """The error for an argument that is not what is wanted."""
    kind = "" if value is None else f" ({type(value).__name__})"
    return error(f"{name} must be {wanted}, not {_brief.repr(value)}{kind}")


def _bounds(least: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f" from {least} to {most}"
    return f" of at least {least}" if least is not None else f" of at most {most}" if most is not None else ""
