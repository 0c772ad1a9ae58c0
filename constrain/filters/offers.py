"""Inspection of filter classes: which parts of the protocol they offer, and in which form they are best asked."""

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
#: The forms in which a filter may answer, the fastest first, and the methods that do so.
_FORMS: dict[Form, tuple[str, ...]] = {
    "bitmask": ("fill_bitmask", "token_mask"),
    "logits": ("prepare_logit_mask", "mask_logits"),
    "ids": ("next", "get_next"),
}
_BACKGROUND = ("get_next", "background_next", "background_prepare_logit_mask")
#: Methods whose results depend on the place in the sequence, so that a copy has to bring along what they use.
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
class Offers:
    """The parts of the protocol that a filter offers.

    Attributes:
        methods: names of the methods of the protocol that it has, optional ones included.
        form: the form to ask it in, if it can mask logits: the fastest of those that the most derived class defines.
            What a subclass does in its own way cannot be left to what it inherits.
        has_masks: ``token_mask`` does what ``fill_bitmask`` does.
        has_matcher: ``lone_matcher`` speaks for ``feed`` and ``token_mask``.
        takes_budget: its masks can be bounded by a number of tokens.
        can_be_copied: ``clone`` knows all of its state: no subclass of the class that defines it changes what it does.
        has_background: it defines in its own way how work in the background is started or collected.
        is_third_party: some method is not of this package.
    """

    methods: frozenset[str]
    form: Form
    has_masks: bool
    has_matcher: bool
    takes_budget: bool
    can_be_copied: bool
    has_background: bool
    is_third_party: bool


_offers: WeakKeyDictionary[type, Offers] = WeakKeyDictionary()


def offers_of(target: Any) -> Offers:
    """Return what a filter offers; a class is inspected once.

    Objects that have methods of their own, or make them up (``__getattr__``), are inspected one by one.

    Raises:
        FilterError: a method is missing that every filter has.
    """
    cls = type(target)
    if hasattr(cls, "__getattr__") or not _METHODS.isdisjoint(_own(target)):
        return _inspect(target, (target, *cls.__mro__))
    if cls not in _offers:
        _offers[cls] = _inspect(cls, cls.__mro__)
    return _offers[cls]


def _inspect(target: Any, scopes: Sequence[Any]) -> Offers:
    """Inspect an object or a class, whose members come from the first of some objects that has them."""
    methods = frozenset(name for name in _METHODS if callable(getattr(target, name, None)))
    missing = [name for name in _REQUIRED if name not in methods]
    if missing:
        name = target.__name__ if isinstance(target, type) else type(target).__name__
        raise FilterError(f"not a filter: it has no method {', '.join(missing)}", (name,))
    # What is made up comes after all scopes, what is missing after that.
    made_up, absent = len(scopes), len(scopes) + 1
    source = {name: next((i for i, each in enumerate(scopes) if name in _own(each)), made_up) for name in methods}
    base = scopes.index(ExLlamaV2Filter) if ExLlamaV2Filter in scopes else absent
    place = {form: min(source.get(name, absent) for name in names) for form, names in _FORMS.items()}
    has_masks = "token_mask" in methods and source["token_mask"] <= source.get("fill_bitmask", absent)
    return Offers(
        methods=methods,
        form=min(place, key=lambda form: place[form]),  # the first of equals
        has_masks=has_masks,
        has_matcher=has_masks and source.get("lone_matcher") == source["token_mask"] == source["feed"],
        takes_budget="min_tokens" in methods and _takes_budget(target, "token_mask" if has_masks else "fill_bitmask"),
        can_be_copied=source.get("clone", base) != base
        and all(source["clone"] <= source[name] for name in methods.intersection(_STATEFUL)),
        has_background=methods.issuperset(_BACKGROUND) and any(source[name] != base for name in _BACKGROUND),
        is_third_party=not all(i < made_up and _is_built_in(scopes[i]) for i in source.values()),
    )


def _own(holder: Any) -> Mapping[str, Any]:
    """The members of an object or a class itself, without what they inherit."""
    members: Mapping[str, Any] = getattr(holder, "__dict__", {})
    return members


def _is_built_in(holder: Any) -> bool:
    return isinstance(holder, type) and holder.__module__.partition(".")[0] == "constrain"


def _takes_budget(target: Any, method: str) -> bool:
    """Whether a method, if it is there, has a parameter for the number of tokens that are left."""
    try:
        parameters = inspect.signature(getattr(target, method)).parameters
    except (AttributeError, TypeError, ValueError):  # compiled functions may have no signature
        return False
    return "budget" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())
