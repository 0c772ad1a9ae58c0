"""Values of one record fit each other: dates and times are in order, and totals are the sums of their parts."""

from __future__ import annotations

from random import Random

import pytest

from constrain.demo.synth import layout, template
from constrain.demo.synth.amendments import amended
from constrain.demo.synth.documents import _worded
from constrain.demo.synth.family import Family, parse_family, trained_families
from constrain.demo.synth.habits import Author
from constrain.demo.synth.kinds import Value
from constrain.demo.synth.order import Sampling
from constrain.demo.synth.quantities import Money
from constrain.demo.synth.records import Records

SEEDS = range(80)


def written(block: str, seed: int, clean: bool = True) -> tuple[str, dict[str, Value]]:
    """Write a family by its first wording."""
    family = parse_family(block)
    author = Author(str(seed))
    author.clean = clean
    return _worded(family, template.parse(family.wordings[0]), author)


def days_between(facts: dict[str, Value], first: str, second: str) -> int:
    days: int = (facts[second].data.date() - facts[first].data.date()).days
    return days


LETTER = "letter\nsent | date | sent on\ndue | later 5 9 | due by\n---\n"


@pytest.mark.parametrize(
    "wording", ["Sent {sent}, not {=date}: due {due}.", "Sent {sent}, born {=date 1950 1960}. {due}", "{due} ({sent})"]
)
def test_later_dates_follow_the_date_of_their_record(wording: str) -> None:
    for seed in SEEDS:
        _, facts = written(LETTER + wording, seed)
        assert 5 <= days_between(facts, "sent", "due") <= 9


def test_later_dates_follow_the_one_declared_before_them_rather_than_a_birthday() -> None:
    block = "visit\nseen | date | seen on\nborn | date | date of birth\nnext | later 5 9 | next visit\n---\n"
    for seed in SEEDS:
        _, facts = written(f"{block}{{seen}}, {{born}}, {{next}}", seed)
        assert 5 <= days_between(facts, "seen", "next") <= 9


def test_later_dates_of_a_list_follow_that_of_the_document_or_of_their_row() -> None:
    head = "minutes\nheld | date | held on\ntasks | records 4-6 | tasks\n  what | noun | task\n"
    for seed in SEEDS:
        _, facts = written(f"{head}  due | later 1 9 | due\n  > {{what}}: {{due}}\n---\n{{held}}\n{{tasks}}", seed)
        due = [row["due"].data for row in facts["tasks"].data if "due" in row]
        assert all(1 <= (day.date() - facts["held"].data.date()).days <= 9 for day in due)
        text = f"{head}  at | date | at\n  due | later 1 9 | due\n  > {{what}}: {{due}} {{at}}\n---\n{{held}} {{tasks}}"
        for row in written(text, seed)[1]["tasks"].data:
            assert 1 <= days_between(row, "at", "due") <= 9 if {"at", "due"} <= row.keys() else True


def test_forms_and_sentences_keep_the_order_too() -> None:
    slots = parse_family(f"{LETTER}{{sent}}").slots
    for seed in SEEDS:
        for write in (layout.form, layout.prose, layout.mixed):
            _, facts = write(Random(seed).sample(slots, 2), Author(str(seed)))
            assert 5 <= days_between(facts, "sent", "due") <= 9


@pytest.mark.parametrize(
    "slots",
    [
        "a | time | departure, leaves at\nb | time | arrival, arrives",
        "b | time | end, until\na | time | start, from",
        "a | time | arrival, arrived\nb | time | departure, left",
        "a | clock | shift from\nb | clock | shift until",
        "a | time | scheduled arrival\nb | time | actual arrival",
    ],
)
@pytest.mark.parametrize("wording", ["It lasts from {a} until {b}.", "Until {b}, from {a} on."])
def test_ends_come_after_beginnings(slots: str, wording: str) -> None:
    for seed in SEEDS:
        _, facts = written(f"x\n{slots}\n---\n{wording}", seed)
        first, second = facts["a"].data.time(), facts["b"].data.time()
        assert first < second or (first.hour, first.minute) == (23, 55) or (second.hour, second.minute) == (0, 0)


@pytest.mark.parametrize("kind", ["date", "day", "month", "stamp", "date 1850 1900", "plain 1990 2020"])
def test_ranges_are_told_by_wordings_and_labels(kind: str) -> None:
    for seed in SEEDS:
        for labels in (("from", "until"), ("opened on", "closed on")):
            _, facts = written(f"x\na | {kind} | {labels[0]}\nb | {kind} | {labels[1]}\n---\n{{a}} to {{b}}", seed)
            assert facts["a"].data < facts["b"].data


@pytest.mark.parametrize(
    ("labels", "ordered"),
    [
        (("doors open", "quiet hour"), False),
        (("old start", "new end"), False),
        (("invoice date", "payable by"), True),
        (("apply by", "first day"), True),
        (("date of birth", "baptism"), True),
        (("date of the visit", "next visit"), True),
        (("paid out on", "first instalment due"), True),
        (("ordered on", "delivered on"), True),
        (("planned visit", "delivered on"), False),
        (("fair opens", "register until"), False),
    ],
)
def test_only_dates_with_a_natural_order_are_ordered(labels: tuple[str, str], ordered: bool) -> None:
    first, second = parse_family(f"x\na | date | {labels[0]}\nb | date | {labels[1]}\n---\n{{a}} {{b}}").slots
    assert (first.after, second.after) == ("", "a" if ordered else "")


def test_due_dates_are_soon_after_those_of_bills() -> None:
    for seed in SEEDS:
        _, facts = written("x\na | date | invoice date\nb | date | due date\n---\n{b}, {a}", seed)
        assert 5 <= days_between(facts, "a", "b") <= 60


def test_times_at_the_starts_of_lines_are_those_of_a_log() -> None:
    block = "x\nc | stamp | over\na | stamp | seen\nb | stamp | told\n---\n{a} smoke\n{b} call\n\n{c} out"
    for seed in SEEDS:
        _, facts = written(block, seed)
        assert facts["a"].data < facts["b"].data < facts["c"].data


def test_slots_come_after_each_other_in_no_circle() -> None:
    for family in trained_families():
        for slots in (family.slots, *(slot.kind.columns for slot in family.slots if isinstance(slot.kind, Records))):
            after = {slot.key: slot.after for slot in slots}
            for key in after:
                chain = [key]
                while chain[-1] in after and len(chain) <= len(after):
                    chain.append(after[chain[-1]])
                assert len(chain) <= len(after) + 1 and chain[-1] == "", family.name


def test_dates_between_others_are_between_them() -> None:
    slots = parse_family("x\na | date | sent\nb | later 5 9 | due\nc | later 1 30 | paid\n---\n{a} {b} {c}").slots
    for seed in SEEDS:
        record = Sampling(slots, Author(str(seed)))
        first, third, second = (record.sample(key).data for key in "acb")
        assert first < second < third or (third - first).days < 2


def test_corrected_dates_keep_their_order() -> None:
    family = parse_family("x\na | date | from\nb | date | until\nc | noun | thing\n---\n{a} to {b} {c}")
    changed = 0
    for seed in SEEDS:
        author = Author(str(seed))
        text, facts = _worded(family, template.parse(family.wordings[0]), author)
        before = dict(facts)
        amended(text, family.slots, facts, author)
        changed += before["a"] != facts["a"] or before["b"] != facts["b"]
        assert facts["a"].data < facts["b"].data
    assert changed > 20


BILL = "bill\nitems | records 2-5 | items\n  what | noun | item\n  price | money 3 90 | price\n  > {what} {price}\n"
TOTAL = "total | money 9 99 sum items price | total\n---\n"


def test_totals_are_the_sums_of_their_lists() -> None:
    for seed in SEEDS:
        _, facts = written(f"{BILL}{TOTAL}{{items}}\nTotal {{total}}", seed)
        assert facts["total"].data[0] == pytest.approx(sum(row["price"].data[0] for row in facts["items"].data))
        assert facts["total"].data[1] == facts["items"].data[0]["price"].data[1]


def test_there_is_no_sum_of_several_currencies() -> None:
    kind = parse_family(f"{BILL}{TOTAL}{{items}}").slots[1].kind
    assert isinstance(kind, Money)
    price = Value("3", (3.0, "EUR"))
    total = kind.total([{"price": price}, {"price": price}], Random(1))
    assert total and total.data == (6.0, "EUR")
    assert kind.total([{"price": price}, {"price": Value("3", (3.0, "USD"))}], Random(1)) is None
    assert kind.total([{"price": price}, {}], Random(1)) is None


def test_totals_name_columns_of_amounts() -> None:
    found = [(family, slot.kind) for family in trained_families() for slot in family.slots]
    sums = [(family, kind) for family, kind in found if isinstance(kind, Money) and kind.items]
    assert len(sums) > 30
    for family, kind in sums:
        assert isinstance(_column(family, kind), Money), family.name


def _column(family: Family, kind: Money) -> object:
    rows = next(slot.kind for slot in family.slots if slot.key == kind.items)
    assert isinstance(rows, Records)
    return next(column.kind for column in rows.columns if column.key == kind.column)


def test_ties_of_a_list_are_of_each_row() -> None:
    block = (
        "x\ngames | records 8-8 | games\n  who | word | who\n  end | tied end enum won, lost | end\n"
        "  glad | tied end bool glad ~ sad | glad\n  > {who} {end} {glad}\n---\n{games}"
    )
    ends: set[str] = set()
    for seed in SEEDS:
        _, facts = written(block, seed)
        rows = [row for row in facts["games"].data if {"end", "glad"} <= row.keys()]
        assert all((row["end"].data == "won") == row["glad"].data for row in rows)
        ends.update(f"{seed} {row['end'].data}" for row in rows)
    assert len(ends) > 1.8 * len(SEEDS)
