"""Validation of arguments at the public interface."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from numbers import Integral, Real
from reprlib import Repr
from typing import Any, TypeAlias

from constrain.errors import ArgumentError

#: Creates an exception from a message.
Refusal: TypeAlias = Callable[[str], Exception]

#: Similarity from which on an unknown name is taken for a misspelt one.
_SIMILAR = 0.8

_brief = Repr()
_brief.maxstring = _brief.maxother = 60


def check_type(
    name: str, value: Any, kinds: type | tuple[type, ...], wanted: str, error: Refusal = ArgumentError
) -> None:
    """Raise unless a value has one of some types; ``wanted`` describes them in the message."""
    if not isinstance(value, kinds):
        raise refused(name, value, wanted, error)


def check_text(name: str, value: Any, error: Refusal = ArgumentError) -> None:
    """Raise unless a value is a ``str`` that can be encoded as UTF-8."""
    check_type(name, value, str, "a str", error)
    try:
        value.encode()
    except UnicodeEncodeError as cause:
        raise error(f"{name} is no text, because of a lone surrogate at index {cause.start}") from cause


def texts_of(name: str, value: Any, error: Refusal = ArgumentError) -> list[str]:
    """Return a collection of texts as a list. A single ``str`` is refused, since it is a collection of its letters."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise refused(name, value, "a list of texts", error)
    texts = list(value)
    for number, text in enumerate(texts):
        check_text(f"{name}[{number}]", text, error)
    return texts


def check_count(
    name: str, value: Any, minimum: int | None = 0, maximum: int | None = None, error: Refusal = ArgumentError
) -> None:
    """Raise unless a value is an integer within bounds."""
    is_whole = type(value) is int or isinstance(value, Integral)  # an abstract class takes longer to check
    number = int(value) if is_whole else None
    if number is None or (minimum is not None and number < minimum) or (maximum is not None and number > maximum):
        raise refused(name, value, f"a whole number{_bounds(minimum, maximum)}", error)


def check_number(
    name: str, value: Any, minimum: float = -math.inf, maximum: float = math.inf, error: Refusal = ArgumentError
) -> None:
    """Raise unless a value is a finite number within bounds."""
    is_real = type(value) is float or isinstance(value, Real)  # an abstract class takes longer to check
    if not (is_real and math.isfinite(value) and minimum <= float(value) <= maximum):
        low, high = (None if math.isinf(bound) else bound for bound in (minimum, maximum))
        raise refused(name, value, f"a finite number{_bounds(low, high)}", error)


def check_names(given: Iterable[str], known: Collection[str]) -> None:
    """Raise unless all options of a call have names that are known."""
    for name in given:
        if name not in known:
            similar = get_close_matches(name, known, 1)
            others = f"did you mean {similar[0]!r}?" if similar else f"there are {', '.join(sorted(known))}"
            raise ArgumentError(f"there is no option {name!r}; {others}")


@cache
def names_of(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names of the parameters of a function."""
    return frozenset(inspect.signature(function).parameters)


def warn_of_misspelt(given: Iterable[str], known: Collection[str], stacklevel: int = 3) -> None:
    """Warn of ignored options whose names are similar to those of options; programs may give others for exllamav2."""
    for name in given:
        similar = [] if name in known else get_close_matches(name, known, 1, _SIMILAR)
        if similar:
            warnings.warn(
                f"there is no {name!r}, which is ignored; did you mean {similar[0]!r}?", stacklevel=stacklevel
            )


def type_with_article(value: Any) -> str:
    """Return the type of a value with its article, for messages: ``"an int"``, ``"a list"``, ``"None"``."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def refused(name: str, value: Any, wanted: str, error: Refusal = ArgumentError) -> Exception:
    """Return the error for an invalid argument; ``wanted`` describes valid ones."""
    kind = "" if value is None else f" ({type(value).__name__})"
    return error(f"{name} must be {wanted}, not {_brief.repr(value)}{kind}")


def _bounds(minimum: float | None, maximum: float | None) -> str:
    if minimum is not None and maximum is not None:
        return f" from {minimum} to {maximum}"
    return f" of at least {minimum}" if minimum is not None else f" of at most {maximum}" if maximum is not None else ""
