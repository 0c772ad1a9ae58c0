"""Lists of groups, each with a heading, perhaps a fact about the group, and a list of entries of any family."""

from __future__ import annotations

from random import Random

from constrain.demo.synth.records import Records
from constrain.demo.synth.slots import Slot
from constrain.demo.synth.specs import parse_kind


def in_groups(entries: Slot, rng: Random) -> Slot | None:
    """Return a slot of two to five groups of ``entries``; nothing where these have the label of a heading, or lists."""
    kind = entries.kind
    if not isinstance(kind, Records) or any(isinstance(column.kind, Records) for column in kind.columns):
        return None
    heading, fact = (_slot(key, line) for key, line in (("head", rng.choice(_HEADINGS)), ("fact", rng.choice(_FACTS))))
    groups = rng.choice(_GROUPS)
    known = {label for slot in (entries, *kind.columns) for label in slot.labels}
    if not known.isdisjoint((*heading.labels, *fact.labels, *groups)):
        return None
    few = Records(kind.columns, 1, min(kind.high, 5), kind.rows[:1], kind.inline, kind.prose)
    inner = Slot("entries", few, entries.labels, entries.about)
    wording = rng.choice(_TITLES).replace("%", heading.labels[0])
    noted = rng.random() < 0.5
    if noted:
        wording += rng.choice(_ASIDES).replace("%", fact.labels[0])
    columns = (heading, fact, inner) if noted else (heading, inner)
    return Slot("groups", Records(columns, 2, 5, (f"{wording}\n{{entries}}\n",)), groups)


def _slot(key: str, line: str) -> Slot:
    spec, labels = line.split(" | ")
    return Slot(key, parse_kind(spec), tuple(labels.split(", ")))


_HEADINGS = (
    "city | branch, site", "company | branch office, partner firm", "person | team leader, leader of the group",
    "date | day of the group, group date", "code ##.#/@-## | section, section number", "street | building, house",
    "title | chapter, heading", "pick north/south/east/west/centre/harbour/airport/old town | district, zone",
    "pick ground floor/first floor/basement/attic/annexe/yard | floor, storey", "month | month of the group, period",
)  # fmt: skip
_FACTS = (
    "person | supervisor, overseer", "phone | extension, hotline", "int 2 90 | staff count, headcount",
    "date | last audited, audited on", "time | opening hour, opens at", "money 100 9000 | local budget, own budget",
)  # fmt: skip
_GROUPS = (("groups", "sections"), ("sections", "parts"), ("blocks", "groups"), ("divisions", "units"))
_TITLES = ("{head}", "{head}:", "# {head}", "%: {head}", "== {head} ==", "\\[{head}\\]", "** {head} **", "%: {head}")
_ASIDES = (" (%: {fact})", ", % {fact}", "\n%: {fact}", " / % {fact}")
