"""Filters as text: a name with arguments, as on the command line."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from constrain.errors import PluginError
from constrain.filters.combined import filters_of
from constrain.filters.engine_filter import ExLlamaV2EngineFilter
from constrain.filters.manager import FilterInfo, create, find

if TYPE_CHECKING:
    from constrain.tokenizer import ExLlamaV2Tokenizer

#: Annotations, and members of unions, that JSON has no other form of than a text.
_TEXTS = frozenset({"str", "re.Pattern[str]", "None"})
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class NamedFilter:
    """A filter that is not made yet. Among the filters of a request, it is made for the model there.

    Attributes:
        name: its name for :func:`~constrain.filters.create`.
        arguments: its own arguments.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> NamedFilter:
        """Read ``name`` or ``name:argument=value,argument=value``.

        A value is JSON, or else a text. For an argument that is annotated as a text, it is always a text; and if that
        is one of several types, it is JSON only if it is a list or an object.

        Raises:
            PluginError: there is no such filter, it has no such argument, one is given twice or is missing, or the
                text has another form.
        """
        name, _, rest = text.partition(":")
        info = find(name)
        own = dict(list(inspect.signature(info.factory).parameters.items())[2:])
        # A value may have commas: only one before the name of an argument ends it.
        pairs = re.split(f",(?=(?:{'|'.join(own)})=)", rest) if own else [rest]
        if rest and not all(re.match(r"[A-Za-z_]\w*=", pair) for pair in pairs):
            raise PluginError(f"{text!r} is not of the form {_form(name, own)}")
        given = dict(pair.split("=", 1) for pair in pairs) if rest else {}
        if rest and len(given) < len(pairs):
            raise PluginError(f"{text!r} gives an argument twice")
        _check_names(info, given, own)
        if missing := [each for each in _required(own) if each not in given]:
            raise PluginError(f"{text!r} has no value for {', '.join(missing)}: give {_form(name, own)}")
        kinds = {key: own[key].annotation if key in own else "str" for key in given}
        return cls(name, {key: _value(value, kinds[key]) for key, value in given.items()})

    def create(self, model: Any, tokenizer: ExLlamaV2Tokenizer) -> Any:
        """Create the filter.

        Raises:
            PluginError: there is no such filter, or it does not take these arguments.
        """
        made = create(self.name, model, tokenizer, **self.arguments)
        if isinstance(made, ExLlamaV2EngineFilter):
            made.argument = f"the filter {self.name}"
        return made


def created(filters: Any, model: Any, tokenizer: ExLlamaV2Tokenizer) -> list[Any]:
    """Return filters, of which those that are named have been created.

    Raises:
        PluginError: there is no filter of a name, or it does not take its arguments.
    """
    return [each.create(model, tokenizer) if isinstance(each, NamedFilter) else each for each in filters_of(filters)]


def _check_names(info: FilterInfo, given: Iterable[str], own: Mapping[str, inspect.Parameter]) -> None:
    """Raise :class:`PluginError` for an argument that a filter does not have."""
    if any(each.kind is each.VAR_KEYWORD for each in own.values()):
        return
    for name in given:
        if name not in own:
            similar = get_close_matches(name, own, 1)
            hint = f"; did you mean {similar[0]!r}?" if similar else ""
            raise PluginError(f"filter {info.name!r} takes {info.signature}: it has no argument {name!r}{hint}")


def _required(own: Mapping[str, inspect.Parameter]) -> list[str]:
    """Return the names of arguments that have no default."""
    return [name for name, each in own.items() if each.default is each.empty and each.kind in _NAMED]


def _form(name: str, own: Mapping[str, inspect.Parameter]) -> str:
    """Return the form of a filter as text."""
    pairs = [f"{each}=VALUE" for each in _required(own)] or ["ARGUMENT=VALUE"]
    return f"{name}:{','.join(pairs)}"


def _value(text: str, annotation: Any) -> Any:
    named = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    kinds = {kind.strip() for kind in named.split("|")}
    if kinds <= _TEXTS:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if "str" in kinds and not isinstance(value, (list, dict)) else value
