"""Grammars of calls of Python functions, with literals of the types of their parameters."""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from constrain.arguments import refused
from constrain.errors import GrammarError

_TERMINALS = r"""
INT: /0|-?[1-9][0-9]{0,17}/
FLOAT: /-?(0|[1-9][0-9]{0,14})\.[0-9]{1,15}/
STR: /"([^"\\\n\r\x00]|\\["\\nrt])*"/
"""
_SCALARS: dict[Any, str] = {
    int: "INT",
    float: "FLOAT",
    str: "STR",
    bool: '("True" | "False")',
    None: '"None"',
    type(None): '"None"',
}
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def lark_of_calls(functions: Iterable[Callable[..., Any]]) -> str:
    """Return the Lark grammar of calls of some Python functions.

    Every text of it is a call such as ``weather("Oslo", days=3)``, which Python's ``ast`` reads, and whose arguments
    bind to the signature and are literals of the types of the parameters. Arguments come in the order of the signature:
    first those without names, then those with names; what has a default may be left out.

    Types may be ``int``, ``float``, ``str``, ``bool``, ``None``, ``Literal``, unions, ``list``, ``set`` of at least one
    item, ``tuple`` and ``dict`` of these.

    Args:
        functions: the functions; their names are called.

    Raises:
        GrammarError: there is no function, two have one name, one has no signature, or a parameter has no type, one
            that literals cannot be of or that is not defined, or takes any number of arguments.
    """
    if isinstance(functions, Mapping) or not isinstance(functions, Iterable):
        raise refused("functions", functions, "a list of functions", GrammarError)
    calls = [_Call(number, function) for number, function in enumerate(functions)]
    names = [call.name for call in calls]
    if not names or len(set(names)) < len(names):
        raise GrammarError("a grammar of calls needs at least one function, and each a name of its own")
    start = " | ".join(f"call{number}" for number in range(len(calls)))
    return "\n".join([f"start: {start}", *(rule for call in calls for rule in call.rules()), _TERMINALS])


class _Call:
    """The rules of the calls of one function.

    Attributes:
        name: its name.
    """

    def __init__(self, number: int, function: Callable[..., Any]) -> None:
        self.name = getattr(function, "__name__", "")
        if not self.name.isidentifier():
            raise GrammarError(f"{function!r} has no name to call it by")
        self._number = number
        try:
            self._parameters = list(inspect.signature(function).parameters.values())
            hints = get_type_hints(function, include_extras=True)
        except (NameError, TypeError, ValueError) as error:  # an annotation that is not defined, or no signature
            raise GrammarError(f"the signature of {self.name} cannot be read: {error}") from error
        self._values = [self._value(parameter, hints) for parameter in self._parameters]

    def rules(self) -> Iterator[str]:
        """Yield the rules: for each parameter, what may follow with and without a name, first or after others."""
        n = self._number
        yield f'call{n}: "{self.name}(" first_unnamed{n}_0 ")"'
        for i, value in enumerate(self._values):
            yield f"value{n}_{i}: {value}"
        for place in range(len(self._parameters) + 1):
            for order in ("first", "later"):
                yield f"{order}_unnamed{n}_{place}: {' | '.join(self._unnamed(place, order))}"
                if self._can_be_named(place):
                    yield f"{order}_named{n}_{place}: {' | '.join(self._named(place, order))}"

    def _can_be_named(self, place: int) -> bool:
        """Whether the parameters from a place on can be left out or given by name."""
        rest = self._parameters[place:]
        return all(each.kind in _KEYWORD or each.default is not inspect.Parameter.empty for each in rest)

    def _unnamed(self, place: int, order: str) -> list[str]:
        n = self._number
        options = [f"{order}_named{n}_{place}"] if self._can_be_named(place) else []
        if place < len(self._parameters) and self._parameters[place].kind in _POSITIONAL:
            options.append(f"{_comma(order)} value{n}_{place} later_unnamed{n}_{place + 1}")
        return options

    def _named(self, place: int, order: str) -> list[str]:
        if place == len(self._parameters):
            return ["()"]
        n, parameter = self._number, self._parameters[place]
        options = []
        if parameter.kind in _KEYWORD:
            options.append(f'{_comma(order)} "{parameter.name}=" value{n}_{place} later_named{n}_{place + 1}')
        if parameter.default is not inspect.Parameter.empty:
            options.append(f"{order}_named{n}_{place + 1}")
        return options

    def _value(self, parameter: inspect.Parameter, hints: dict[str, Any]) -> str:
        place = f"parameter {parameter.name!r} of {self.name}"
        if parameter.kind in _VARIADIC:
            raise GrammarError(f"{place} takes any number of arguments, whose names and types are not known")
        if parameter.name not in hints:
            raise GrammarError(f"{place} has no type")
        return _literals(hints[parameter.name], place)


def _comma(order: str) -> str:
    return '", "' if order == "later" else ""


def _literals(kind: Any, place: str) -> str:
    """Return the expression of the literals of a type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _SCALARS:
        return _SCALARS[kind]
    if origin is Annotated:
        return _literals(arguments[0], place)
    if origin is Literal and not any(isinstance(each, (Enum, bytes)) for each in arguments):
        return _any_of(json.dumps(repr(each), ensure_ascii=False) for each in arguments)
    if origin in (Union, types.UnionType):
        return _any_of(_literals(each, place) for each in arguments)
    if origin in (list, set) and arguments:
        item = _literals(arguments[0], place)
        items = f'{item} (", " {item})*'
        return f'"[" ({items})? "]"' if origin is list else f'"{{" {items} "}}"'
    if origin is tuple and arguments:
        return _tuple(arguments, place)
    if origin is dict and arguments:
        member = f'{_literals(arguments[0], place)} ": " {_literals(arguments[1], place)}'
        return f'"{{" ({member} (", " {member})*)? "}}"'
    raise GrammarError(f"{place} is of type {kind!r}, which has no literals that a grammar knows")


def _tuple(arguments: tuple[Any, ...], place: str) -> str:
    if arguments[-1] is Ellipsis:
        item = _literals(arguments[0], place)
        return f'"(" ({item} "," (" " {item} ("," " " {item})*)?)? ")"'
    items = ' ", " '.join(_literals(each, place) for each in arguments)
    comma = '","' if len(arguments) == 1 else ""
    return f'"(" {items} {comma} ")"'


def _any_of(options: Iterable[str]) -> str:
    return "(" + " | ".join(options) + ")"
