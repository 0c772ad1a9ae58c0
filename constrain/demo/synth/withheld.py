"""Fields that a document names without telling their values: *to follow*, *ask Ada*, *will be announced in May*.

``words/withheld.txt`` has what is printed after a label, and sentences about a ``{label}``, templates of
:mod:`constrain.demo.synth.template`. The values in them are of other matters, and of other forms than what is asked
for, except after ``!``. The last two sections are for documents that are held out.
"""

from __future__ import annotations

from functools import cache
from random import Random

from constrain.demo.synth import implied, kinds, moments, naming, quantities, spoken, template
from constrain.demo.synth.kinds import Kind
from constrain.demo.synth.noise import Places
from constrain.demo.synth.records import Records
from constrain.demo.synth.slots import Slot
from constrain.demo.synth.specs import distractor, parse_kind
from constrain.demo.synth.template import Hole, Template
from constrain.demo.synth.wordlists import words

_PRINTED = 0.5
"""Share of the fields that are named by a label on a line of its own."""

#: Kinds to which *no* or *none* is an answer.
_ANSWERED = (kinds.Boolean, kinds.Enum, kinds.Listing, Records)

#: Words at the ends of labels that a sentence cannot have after an article, such as *signed by*.
_UNFIT = frozenset("at by for from in is on to was who whom with delivered due made sent signed".split())


def can_be_withheld(slot: Slot) -> bool:
    """Whether words like *none* are no answer to a slot."""
    return not isinstance(slot.kind, _ANSWERED)


def withhold(text: str, slot: Slot, places: Places, held_out: bool, rng: Random) -> str:
    """Name a slot in a text without telling its value.

    Args:
        text: a text that does not state the slot.
        slot: a slot that :func:`can_be_withheld`.
        places: places of values, which are left whole.
        held_out: whether in words that are never trained on.
    """
    label = rng.choice(slot.labels)
    printed = not _UNFIT.isdisjoint((label.split()[0], label.split()[-1])) or rng.random() < _PRINTED
    said = rng.choice(_templates(printed, held_out, _form(slot.kind)))

    def fill(key: str, mode: str) -> str:
        return distractor(key, rng) if key.startswith("=") else label

    sentence = template.render(said, rng, fill)
    if not printed:
        return implied.woven(text, [sentence], places, rng)
    named = naming.printed(label, naming.print_style(rng), rng)
    return _with_line(text, f"{named}{rng.choice(_MARKS)}{sentence}", places, rng)


_MARKS = (": ", ": ", ": ", ":  ", " - ", "\t", " = ", " ")


def _with_line(text: str, line: str, places: Places, rng: Random) -> str:
    """Insert a line between those of a text, outside of ``places``, or at its end."""
    breaks = [at for at, char in enumerate(text) if char == "\n"]
    free = [at for at in breaks if not any(start < at < end for start, end in places)]
    at = rng.choice([*free, len(text)])
    return f"{text[:at]}\n{line}{text[at:]}"


@cache
def _templates(printed: bool, held_out: bool, form: str) -> list[Template]:
    """Read those templates whose values cannot be taken for one of a form."""
    blocks = "\n".join(("", *words("withheld"))).split("\n# ")[1:]
    sections = {name: lines for name, *lines in (block.split("\n") for block in blocks)}
    lines = sections[("printed" if printed else "said") + " held out" * held_out]
    return [template.parse(line.lstrip("!")) for line in lines if line.startswith("!") or form not in _forms(line)]


def _forms(line: str) -> set[str]:
    """Return the forms of the values in a template."""
    holes = (node for node in template.parse(line) if isinstance(node, Hole) and node.key.startswith("="))
    return {_form(parse_kind(hole.key[1:])) for hole in holes}


def _form(kind: Kind) -> str:
    """Return a name of the form of values, which kinds share that are told apart by words only."""
    if isinstance(kind, kinds.Text):
        return "name" if kind.name in ("company", "first_name", "surname") else kind.name
    return next((form for classes, form in _FORMS if isinstance(kind, classes)), "")


_FORMS: tuple[tuple[tuple[type[Kind], ...], str], ...] = (
    ((kinds.Person,), "name"),
    ((moments.Date, moments.Month, moments.Time, moments.Stamp), "moment"),
    ((quantities.Money, quantities.Integer, quantities.Decimal, spoken.Duration, spoken.Share), "number"),
)
