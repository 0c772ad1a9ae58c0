"""Plain answers to a question that has a label, such as *Remote work welcome* to ``remote work possible``."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple


class _Ends(NamedTuple):
    """Ends of short statements that mean yes and no, in place of the last word of a label."""

    yes: tuple[str, ...]
    no: tuple[str, ...]


_MAY = _Ends(
    ("possible", "welcome", "an option", "fine", "allowed", "OK", "permitted", "no problem", "accepted"),
    ("not possible", "not an option", "not allowed", "not permitted", "out of the question", "forbidden", "not OK"),
)
_MUST = _Ends(
    ("required", "needed", "a must", "necessary", "essential", "mandatory", "obligatory"),
    ("not required", "not needed", "optional", "not necessary", "not a must", "voluntary", "can be left out"),
)
_COMES = _Ends(
    ("included", "provided", "available", "on offer", "for everybody", "there"),
    ("not included", "not provided", "not available", "not on offer", "missing", "unavailable"),
)
_DONE = _Ends(("done", "finished", "complete", "over"), ("not done", "still to be done", "not finished", "pending"))
_FOR_MONEY = _Ends(("paid", "settled", "paid in full"), ("not paid", "unpaid", "outstanding", "still open"))
_ENDS: dict[str, _Ends] = {
    **dict.fromkeys(("possible", "allowed", "permitted", "welcome", "accepted"), _MAY),
    **dict.fromkeys(("required", "needed"), _MUST),
    **dict.fromkeys(("provided", "available", "offered"), _COMES),
    **dict.fromkeys(("done", "finished", "performed"), _DONE),
    "included": _Ends(
        ("included", "in the price", "at no extra charge"), ("not included", "extra", "charged separately", "excluded")
    ),
    "paid": _FOR_MONEY,
    "cancelled": _Ends(("cancelled", "called off"), ("not cancelled", "goes ahead", "takes place as planned")),
    "delivered": _Ends(("delivered", "handed over"), ("not delivered", "not yet delivered", "still on its way")),
    "arrived": _Ends(("arrived", "here", "received"), ("not arrived", "still missing", "not yet here")),
    "approved": _Ends(("approved", "accepted", "granted"), ("not approved", "rejected", "turned down", "declined")),
    "agreed": _Ends(("agreed", "settled"), ("not agreed", "still open", "no agreement")),
    "passed": _Ends(("passed", "OK"), ("not passed", "failed")),
    "supported": _Ends(("supported", "works"), ("not supported", "unsupported")),
    "works": _Ends(("works", "works fine", "OK", "in order"), ("does not work", "out of order", "broken", "dead")),
    "present": _Ends(("present", "found", "positive"), ("not present", "absent", "not found", "none")),
    "damaged": _Ends(("damaged", "broken"), ("not damaged", "intact", "undamaged", "without damage")),
    "attached": _Ends(("attached", "enclosed"), ("not attached", "to follow", "not enclosed")),
    "negotiable": _Ends(("negotiable", "open to discussion"), ("not negotiable", "fixed")),
}
#: Last words of labels before which *no* denies the whole.
_WITH_NO = frozenset("required needed provided available offered included accepted possible allowed permitted".split())

_ANSWERS = {
    True: (
        "{}", "{}", "{}: yes", "{}? Yes.", "{}: ja", "✓ {}", "{}: of course.", "{} - indeed.", "[x] {}", "{}: y",
        "{}: oui, sí, yes!", "{}: yes, certainly", "{}: true",
    ),
    False: (
        "{}: no", "{}: no", "{}? No.", "{}: nein", "✗ {}", "{}: not this time.", "{} - alas, no.", "[ ] {}", "{}: n",
        "{}: never.", "{}? Not at all.", "{}: non", "{}: not any more.", "{}? We must say no to that.", "{}: false",
    ),
}  # fmt: skip


def plain_answer(labels: Sequence[str], answer: bool, rng: Random) -> str:
    """Write a short answer with the words of one of the labels, in most cases as a statement."""
    label = rng.choice(labels)
    stem, _, last = label.rpartition(" ")
    if not stem or last not in _ENDS or rng.random() < 0.25:
        return rng.choice(_ANSWERS[answer]).format(label)
    if not answer and last in _WITH_NO and rng.random() < 0.25:
        return f"no {label}{rng.choice(['', '.'])}"
    end = rng.choice(_ENDS[last].yes if answer else _ENDS[last].no)
    return stem + rng.choice([" ", " ", ": ", " - "]) + end + rng.choice(["", ".", ".", "!"])
