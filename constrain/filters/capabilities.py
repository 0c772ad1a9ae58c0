"""Inspection of filter classes: the parts of the protocol that they implement, and their fastest form."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

from constrain.errors import FilterError
from constrain.filters.base import ExLlamaV2Filter

Form: TypeAlias = Literal["bitmask", "logits", "ids"]

_REQUIRED = ("begin", "feed", "next")
#: The forms of a filter's result, the fastest first, and their methods.
_FORMS: dict[Form, tuple[str, ...]] = {
    "bitmask": ("fill_bitmask", "token_mask"),
    "logits": ("prepare_logit_mask", "mask_logits"),
    "ids": ("next", "get_next"),
}
_BACKGROUND = ("get_next", "background_next", "background_prepare_logit_mask")
#: Methods whose results depend on the state of the filter, which ``clone`` has to copy.
_STATEFUL = frozenset((*_REQUIRED, *_BACKGROUND, *_FORMS["bitmask"], *_FORMS["logits"]))
_METHODS = frozenset(
    (
        *(name for name, member in vars(ExLlamaV2Filter).items() if callable(member) and name[0] != "_"),
        *_STATEFUL,
        "feed_text",
        "forced_tokens",
        "lone_matcher",
        "min_tokens",
    )
)


@dataclass(frozen=True)
class Capabilities:
    """The parts of the protocol that a filter implements.

    Attributes:
        methods: names of the methods of the protocol that it has, optional ones included.
        form: the form to use, if it can mask logits: the fastest one that the most derived class defines. Inherited
            forms do not have the changes that a subclass makes to another form.
        has_masks: ``token_mask`` is equivalent to ``fill_bitmask``.
        has_matcher: ``lone_matcher`` is valid for ``feed`` and ``token_mask``.
        takes_budget: its masks can be limited by a token budget.
        next_takes_budget: the ids of ``next`` can be, and nothing changes how they are started or collected.
        can_be_copied: ``clone`` copies all state: no subclass of the class that defines it overrides a stateful method.
        has_background: it overrides how background work is started or collected.
        is_third_party: a method is defined outside of this package.
    """

    methods: frozenset[str]
    form: Form
    has_masks: bool
    has_matcher: bool
    takes_budget: bool
    next_takes_budget: bool
    can_be_copied: bool
    has_background: bool
    is_third_party: bool


_inspected: WeakKeyDictionary[type, Capabilities] = WeakKeyDictionary()


def capabilities_of(target: Any) -> Capabilities:
    """Inspect a filter; the result is cached for its class.

    Objects with methods in their ``__dict__`` or of ``__getattr__`` are inspected individually.

    Raises:
        FilterError: a required method is missing, or the target is a class.
    """
    if isinstance(target, type):
        raise FilterError("a class is no filter: create one, with its arguments", (target.__name__,))
    cls = type(target)
    if hasattr(cls, "__getattr__") or not _METHODS.isdisjoint(_own(target)):
        return _inspect(target, (target, *cls.__mro__))
    if cls not in _inspected:
        _inspected[cls] = _inspect(cls, cls.__mro__)
    return _inspected[cls]


def _inspect(target: Any, scopes: Sequence[Any]) -> Capabilities:
    """Inspect an object or a class whose members are looked up in ``scopes``, in order."""
    methods = frozenset(name for name in _METHODS if callable(getattr(target, name, None)))
    missing = [name for name in _REQUIRED if name not in methods]
    if missing:
        name = target.__name__ if isinstance(target, type) else type(target).__name__
        raise FilterError(f"not a filter: it has no method {', '.join(missing)}", (name,))
    # Position of the definition among the scopes; dynamic methods come after all of them, missing ones last.
    dynamic, absent = len(scopes), len(scopes) + 1
    source = {name: next((i for i, each in enumerate(scopes) if name in _own(each)), dynamic) for name in methods}
    base = scopes.index(ExLlamaV2Filter) if ExLlamaV2Filter in scopes else absent
    place = {form: min(source.get(name, absent) for name in names) for form, names in _FORMS.items()}
    has_background = any(source.get(name, base) != base for name in _BACKGROUND)
    has_masks = "token_mask" in methods and source["token_mask"] <= source.get("fill_bitmask", absent)
    return Capabilities(
        methods=methods,
        form=min(place, key=lambda form: place[form]),  # min returns the first, and so the fastest, of equals
        has_masks=has_masks,
        has_matcher=has_masks and source.get("lone_matcher") == source["token_mask"] == source["feed"],
        takes_budget="min_tokens" in methods and _takes_budget(target, "token_mask" if has_masks else "fill_bitmask"),
        next_takes_budget="min_tokens" in methods and not has_background and _takes_budget(target, "next"),
        can_be_copied=source.get("clone", base) != base
        and all(source["clone"] <= source[name] for name in methods.intersection(_STATEFUL)),
        has_background=methods.issuperset(_BACKGROUND) and has_background,
        is_third_party=not all(i < dynamic and _is_built_in(scopes[i]) for i in source.values()),
    )


def _own(holder: Any) -> Mapping[str, Any]:
    """Return the members of an object or class, without inherited ones."""
    members: Mapping[str, Any] = getattr(holder, "__dict__", {})
    return members


def _is_built_in(holder: Any) -> bool:
    return isinstance(holder, type) and holder.__module__.partition(".")[0] == "constrain"


def _takes_budget(target: Any, method: str) -> bool:
    """Whether a method exists and has a parameter ``budget``."""
    try:
        parameters = inspect.signature(getattr(target, method)).parameters
    except (AttributeError, TypeError, ValueError):  # compiled functions may have no signature
        return False
    return "budget" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())
