"""Tables of synthetic documents: units above columns, rows without labels, sums below."""

from __future__ import annotations

import re
from random import Random

from constrain.demo.synth.habits import Author, breaks_values
from constrain.demo.synth.kinds import Text, Value
from constrain.demo.synth.naming import unit_of, with_unit
from constrain.demo.synth.quantities import without_unit
from constrain.demo.synth.questions import Manner
from constrain.demo.synth.slots import Slot
from constrain.demo.synth.specs import parse_kind
from constrain.demo.synth.tables import print_table

PRICE = Slot("price", parse_kind("money 5 900"), ("price",))
WEIGHT = Slot("weight", parse_kind("num 1 9 1 kg"), ("weight",))
NAME = Slot("name", parse_kind("noun"), ("name",))

Table = tuple[str, list[dict[str, Value]]]


def tables(*columns: Slot, count: int = 300) -> list[Table]:
    made: list[Table] = []
    for seed in range(count):
        author = Author(str(seed))
        rows = [{column.key: column.kind.sample(author) for column in columns} for _ in range(3)]
        made.append((print_table(columns, rows, author), rows))
    return made


def test_units_stand_in_the_cells_or_above_them() -> None:
    above = 0
    for text, rows in tables(NAME, WEIGHT, PRICE):
        assert all(value.text in text for row in rows for value in row.values())
        if re.search(r"weight[ _,]+(\(|\[|in[ _]|)kg", text, re.IGNORECASE):
            above += 1
            assert all(re.fullmatch(r"[\d.,]+", row["weight"].text) for row in rows)
        else:
            assert all("kg" in row["weight"].text for row in rows)
    assert 60 < above < 200


def test_the_currency_of_bare_amounts_is_in_the_text() -> None:
    bare = [(text, rows) for text, rows in tables(NAME, PRICE) if rows[0]["price"].text[-1:].isdigit()]
    plain = [(text, rows) for text, rows in bare if re.fullmatch(r"[\d.,' ]+", rows[0]["price"].text)]
    assert len(plain) > 40
    assert all(rows[0]["price"].data[1] in text for text, rows in plain)


def test_columns_that_are_told_by_their_values_may_have_no_labels() -> None:
    unlabelled = [text for text, _ in tables(NAME, PRICE) if "rice" not in text.lower()]
    assert 60 < len(unlabelled) < 160
    assert all("eight" in text.lower() for text, _ in tables(NAME, WEIGHT, PRICE))


def test_below_some_tables_is_a_sum_that_is_no_row() -> None:
    summed = 0
    for text, rows in tables(NAME, PRICE):
        *_, last = text.split("\n")
        if found := re.search(r"([\d,]+\.\d\d)$", last):
            total = sum(row["price"].data[0] for row in rows)
            summed += found[1] == f"{total:,.2f}"
    assert 60 < summed < 220


def test_numbers_are_split_from_their_units() -> None:
    money, weight = PRICE.kind, WEIGHT.kind
    assert without_unit(weight, Value("2.5kg", 2.5)) == ("2.5", "kg")
    assert without_unit(money, Value("$1,200.50", (1200.5, "USD"))) == ("1,200.50", "USD")
    assert without_unit(money, Value("12 EUR", (12.0, "EUR"))) == ("12", "EUR")
    assert without_unit(money, Value("$45k", (45000.0, "USD"))) is None
    assert without_unit(NAME.kind, Value("house")) is None


def test_names_of_fields_may_have_the_unit_or_currency_of_the_document() -> None:
    author = Author("a")
    author.clean = True
    currency = PRICE.kind.sample(author).data[1].lower()
    names = {with_unit("price", PRICE.kind, author) for _ in range(300)}
    assert names == {"price", f"price {currency}", f"price in {currency}"}
    assert {with_unit("kg", WEIGHT.kind, Random(seed)) for seed in range(60)} == {"kg", "kg kilos", "kg in kilos"}
    assert unit_of(NAME.kind, author) == ""


def test_long_cells_go_on_below_themselves_and_cannot_be_quoted() -> None:
    long = Slot("long", Text(lambda _: "a cell of many words that has to be folded"), ("remark",))
    folded = 0
    for seed in range(300):
        author = Author(str(seed))
        rows = [{"name": Value(f"n{at}"), "long": long.kind.sample(author)} for at in range(3)]
        text = print_table([NAME, long], rows, author)
        assert breaks_values(author) == (rows[0]["long"].text not in text)
        folded += breaks_values(author)
        assert not breaks_values(author) or Manner.sample(author).quoted == 0
    assert 10 < folded < 60
