"""The generator of documents: deterministic, true to its schemas, and split cleanly."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime
from random import Random
from typing import Any

import jsonschema_rs
import pytest

from constrain.demo.synth import Split, documents, example, implied, layout, noise, records, remix, tables, template
from constrain.demo.synth.address import addressed, labelled
from constrain.demo.synth.documents import _worded
from constrain.demo.synth.family import (
    Family,
    held_out_families,
    parse_family,
    trained_families,
)
from constrain.demo.synth.habits import Author
from constrain.demo.synth.kinds import RANKS, Value, verbatim
from constrain.demo.synth.moments import ordinal, said_time
from constrain.demo.synth.quantities import Money, in_words
from constrain.demo.synth.questions import ask_object
from constrain.demo.synth.records import Records
from constrain.demo.synth.slots import Slot
from constrain.demo.synth.specs import distractor, parse_kind
from constrain.demo.synth.tables import print_table
from constrain.demo.synth.unanswered import partly_named, unanswered, unknown_contact
from constrain.extract.evidence import with_quotes

ALL = (*trained_families(), *held_out_families())


@pytest.mark.parametrize("split", Split)
def test_examples_depend_on_seed_split_and_index_alone(split: Split) -> None:
    first = [example(3, split, index) for index in range(20)]
    assert first == [example(3, split, index) for index in range(20)]
    assert first != [example(4, split, index) for index in range(20)]


@pytest.mark.parametrize("split", Split)
def test_gold_records_match_their_schemas(split: Split) -> None:
    for index in range(400):
        sample = example(0, split, index)
        jsonschema_rs.meta.validate(sample.schema)
        jsonschema_rs.Draft202012Validator(with_quotes(sample.schema)).validate(sample.record)
        assert json.loads(sample.answer) == sample.record


def test_values_that_are_copied_stand_in_the_text() -> None:
    checked = 0
    for index in range(300):
        sample = example(0, Split.TRAIN, index)
        text = " ".join(sample.text.replace("> ", "").split())
        properties = sample.schema.get("properties", {})
        for name, schema in properties.items():
            value = sample.record.get(name)
            if schema == {"type": "string"} and value is not None and "currency" not in name.lower():
                assert " ".join(value.split()) in text, (value, sample.text)
                checked += 1
    assert checked > 200


def test_held_out_wordings_and_families_are_never_trained_on() -> None:
    trained = {wording for family in trained_families() for wording in family.wordings}
    held_out = {wording for family in trained_families() for wording in family.held_out}
    assert len(trained_families()) >= 40
    assert sum(bool(family.held_out) for family in trained_families()) > len(trained_families()) / 2
    assert trained.isdisjoint(held_out)
    assert {family.name for family in trained_families()}.isdisjoint(family.name for family in held_out_families())
    seen = {example(0, Split.TRAIN, index).family for index in range(2000)}
    assert seen.isdisjoint(family.name for family in held_out_families())
    assert {example(0, Split.FAMILIES, index).family for index in range(100)} <= {f.name for f in held_out_families()}


def test_distractors_are_of_kinds_that_exist() -> None:
    wordings = (wording for family in ALL for wording in (*family.wordings, *family.held_out))
    kinds = {kind for wording in wordings for kind in re.findall(r"(?<!\\)\{=([^}]*)\}", wording)}
    assert len(kinds) > 100
    for kind in kinds:
        parse_kind(kind)


def test_families_have_different_names() -> None:
    names = [family.name for family in ALL]
    assert len(names) == len(set(names))


def test_dates_without_a_year_are_near_the_first_date() -> None:
    without = 0
    for seed in range(300):
        author = Author(str(seed))
        first, *others = [parse_kind("date").sample(author) for _ in range(4)]
        assert _states_year(first)
        dates = [value.data for value in others if not _states_year(value)]
        without += len(dates)
        assert all(abs((date - author.habits["first date"]).days) <= 90 for date in dates)
    assert without > 100


def _states_year(value: Value) -> bool:
    year: int = value.data.year
    return str(year) in value.text or value.text.endswith(f"{year % 100:02}")


@pytest.mark.parametrize("family", ALL, ids=lambda family: family.name)
def test_wordings_mention_only_slots_of_their_family(family: Family) -> None:
    slots = {slot.key: slot for slot in family.slots}
    assert len(slots) == len(family.slots)
    for wording in (*family.wordings, *family.held_out):
        assert template.keys(template.parse(wording)) <= slots.keys()
    for slot in family.slots:
        assert all(sentence.count("{}") == 1 for sentence in slot.says)
        if isinstance(slot.kind, Records):
            columns = {column.key for column in slot.kind.columns}
            for wording in (*slot.kind.rows, *slot.kind.inline, *slot.kind.prose):
                assert template.keys(template.parse(wording)) <= columns


@pytest.mark.parametrize("family", ALL, ids=lambda family: family.name)
def test_records_have_templates_for_the_modes_of_wordings(family: Family) -> None:
    wordings = "\n---\n".join((*family.wordings, *family.held_out))
    for slot in family.slots:
        if isinstance(slot.kind, Records):
            assert slot.kind.inline or f"{{{slot.key}:inline}}" not in wordings
            assert slot.kind.prose or f"{{{slot.key}:prose}}" not in wordings


def test_family_files_read_slots_columns_and_wordings() -> None:
    family = parse_family(
        "order\n"
        "who | person | customer, buyer | who orders | Ordered by {}. / {} ordered.\n"
        "items | records 1-2 | items\n"
        "  name | noun | item\n"
        "  > - {name}\n"
        "  >> a {name}\n"
        "  >>> One is {name}.\n"
        "---\nFor {who}:\n{items}\n"
        "--- held out\n{who} wants {items:inline}.\n"
    )
    who, items = family.slots
    assert (who.labels, who.about, who.says) == (
        ("customer", "buyer"),
        "who orders",
        ("Ordered by {}.", "{} ordered."),
    )
    assert isinstance(items.kind, Records)
    assert (items.kind.low, items.kind.high, items.kind.rows, items.kind.inline) == (1, 2, ("- {name}",), ("a {name}",))
    assert items.kind.prose == ("One is {name}.",)
    assert family.wordings == ("For {who}:\n{items}",)
    assert family.held_out == ("{who} wants {items:inline}.",)


def test_records_may_take_several_lines() -> None:
    family = parse_family(
        "n\nitems | records 1-2 | items\n  a | noun | item\n  > Item ¶   {a}\n  > {a} ¶\n---\n{items}",
    )
    kind = family.slots[0].kind
    assert isinstance(kind, Records)
    assert kind.rows == ("Item\n  {a}", "{a}\n")


def test_commas_within_the_phrases_of_classes_are_errors() -> None:
    with pytest.raises(ValueError, match="a class without phrases among others"):
        parse_kind("enum cold=ice, snow and wind, hot=sun")


def test_several_classes_are_asked_as_a_list() -> None:
    kind = parse_kind("some wifi=wireless internet, pool=a swim before breakfast/indoor pool, sauna=sweating 1-3")
    for seed in range(60):
        rng = Random(seed)
        value, ask = kind.sample(rng), kind.ask(rng)
        record = ask.read(value)
        assert set(record) <= set(ask.schema["items"]["enum"])
        assert len(set(record)) == len(record) == len(value.data) <= 3
        assert ("pool" in value.data) == ("swim" in value.text or "pool" in value.text)


def test_days_of_the_week_are_printed_as_lists_and_ranges() -> None:
    kind = parse_kind("weekdays")
    texts = {kind.sample(Random(seed)).text: kind.sample(Random(seed)).data for seed in range(4000)}
    assert texts["Tuesday to Friday"] == texts["Tuesday-Friday"] == [1, 2, 3, 4]
    assert texts["weekdays"] == texts["daily but Saturday and Sunday"] == [0, 1, 2, 3, 4]
    assert texts["Mondays and Thursdays"] == texts["Mon, Thu"] == [0, 3]
    ask = kind.ask(Random(1))
    assert ask.read(Value("", [0, 6])) == [ask.schema["items"]["enum"][0], ask.schema["items"]["enum"][6]]


def test_unknown_kinds_are_named() -> None:
    with pytest.raises(ValueError, match="'colourful'"):
        parse_kind("colourful 1 2")


def test_templates_choose_leave_out_and_escape() -> None:
    parsed = template.parse(r"<a|b{x}>\[{y:lines}\][ or {z}]")
    assert template.keys(parsed) == {"x", "y", "z"}
    assert template.always(parsed) == {"y"}
    texts = {template.render(parsed, Random(seed), lambda key, mode: key.upper() + mode) for seed in range(50)}
    assert texts == {"a[Ylines]", "a[Ylines] or Z", "bX[Ylines]", "bX[Ylines] or Z"}
    with pytest.raises(ValueError, match="not closed"):
        template.parse("one <of|these")


def test_values_at_the_start_of_a_sentence_have_a_capital() -> None:
    family = Family("greeting", (Slot("a", parse_kind("pick many thanks/you are welcome"), ("phrase",)),))
    for seed in range(9):
        text, facts = _worded(family, template.parse("{a:cap}. I say: {a}"), Random(seed))
        assert text[0].isupper()
        assert text.count(facts["a"].text) == 2


def test_forms_of_address_and_remarks_are_no_part_of_values() -> None:
    parsed = template.parse("Mr {a} met <{a}|{b}>[ and {a}] in {c}")
    texts = set()
    for seed in range(200):
        rng = Random(seed)
        texts.add(template.render(addressed(parsed, {"a", "b"}, rng), rng, lambda key, mode: key.upper()))
    assert {"Mr A met A in C", "Mr A met B and A in C"} <= texts
    assert any(re.fullmatch(r"Mr A met \w[\w. -]+ B( and [\w. -]+)? in C", text) for text in texts)
    assert all(re.fullmatch(r"Mr A met ([\w. -]+ )?[AB]( and ([\w. -]+ )?A)? in C", text) for text in texts)
    person, name = parse_kind("person"), Value("Ada Byron", ("Ada", "Byron"))
    shown = {labelled(person, name, Random(seed)) for seed in range(400)}
    assert {"Ada Byron", "Mrs Ada Byron"} <= shown
    assert any(text.startswith("Ada Byron ") for text in shown)
    assert all("Ada Byron" in text for text in shown)
    assert {labelled(parse_kind("int 1 9"), Value("7", 7), Random(seed)) for seed in range(100)} == {"7"}


def test_ranks_are_part_of_names() -> None:
    wording = template.parse("<Asked by|From> Dr. {a}[, seen by Mrs {b}], for {a}")
    for seed in range(60):
        rng = Author(str(seed))
        ranked = addressed(wording, {"a", "b"}, rng)
        text = template.render(ranked, rng, lambda key, mode: parse_kind("person").sample(Random(key), mode).text)
        name = parse_kind("person").sample(Random("a"), "Dr.").text
        assert name.startswith("Dr. ") and "Dr. Dr." not in text and name in text
        assert f"seen by Mrs {parse_kind('person').sample(Random('b'), 'bare').text}" in text or "seen" not in text
    names = [parse_kind("person").sample(Author(str(seed))) for seed in range(500)]
    ranked_names = [name for name in names if name.text.startswith(RANKS)]
    assert 15 < len(ranked_names) < 60
    assert all(name.text.endswith(" ".join(name.data)) for name in ranked_names)


@pytest.mark.parametrize(
    ("written", "copied"),
    [
        ("the blue room", "blue room"),
        ("an upright piano", "upright piano"),
        ("The Blue Room", "The Blue Room"),
        ("the gate was left open all night again", "the gate was left open all night again"),
        ("theatre", "theatre"),
    ],
)
def test_articles_are_no_part_of_short_phrases(written: str, copied: str) -> None:
    kind = parse_kind(f"pick {written}")
    author = Author("a")
    author.clean = True
    value = kind.sample(author)
    assert (value.text, verbatim(value)) == (written, copied)
    assert verbatim(value.capitalised()).lower() == copied.lower()


def test_hedges_and_remarks_are_no_part_of_texts() -> None:
    kind, value = parse_kind("pick gout"), Value("gout")
    shown = {labelled(kind, value, Random(seed)) for seed in range(3000)}
    assert {"gout", "likely gout", "probably gout", "gout, right", "gout (as agreed)"} <= shown
    assert all("gout" in text for text in shown)
    assert {labelled(parse_kind("code AB"), Value("AB"), Random(seed))[:2] for seed in range(500)} == {"AB"}


def test_values_in_quotes_and_after_titles_stay_alone() -> None:
    for says, spec in (
        ('They call it "{}".', "pick gout"),
        ("Dr. {} came.", "person"),
        ("For Dr {}, please.", "person"),
    ):
        slot = Slot("a", parse_kind(spec), ("name",), "", (says,))
        told = [layout.prose([slot], Author(str(seed))) for seed in range(300)]
        assert sum(says.replace("{}", values["a"].text) in text for text, values in told) > 180
        before, _, after = says.partition("{}")
        for text, values in told:
            if before in text and after in text:
                assert says.replace("{}", values["a"].text) in text


def test_items_with_commas_are_not_separated_by_commas() -> None:
    kind = parse_kind("list person 3-5")
    for seed in range(300):
        value = kind.sample(Random(seed))
        if any("," in item.text for item in value.data):
            assert any(value.text.split(mark) == [item.text for item in value.data] for mark in ("; ", " / ", " | "))


def test_what_follows_a_name_is_no_part_of_it() -> None:
    parsed = template.parse("Signed: {a}\nSeen by {a}.")
    texts = set()
    for seed in range(1500):
        rng = Author(str(seed))
        texts.add(template.render(addressed(parsed, {"a"}, rng), rng, lambda key, mode: key.upper()))
    assert "Signed: A\nSeen by A." in texts
    assert any(re.fullmatch(r"Signed: (\S.* )?A(, .+| \(.+\)| - .+)\nSeen by (\S.* )?A\.", text) for text in texts)
    person, name = parse_kind("person"), Value("Ada Byron", ("Ada", "Byron"))
    shown = {labelled(person, name, Author(str(seed))) for seed in range(1500)}
    assert any(text.startswith("Ada Byron, ") for text in shown)
    assert any(re.fullmatch(r"Ada Byron \((MSc|PhD|CPA)\)", text) for text in shown)


def test_recombined_wordings_mention_each_slot_once() -> None:
    family = next(family for family in trained_families() if family.name == "invoice")
    for seed in range(50):
        found: list[str] = []

        def fill(key: str, mode: str, found: list[str] = found) -> str:
            found += [] if key.startswith("=") else [key]
            return key

        rng = Random(seed)
        template.render(remix.recombined(family.wordings, rng), rng, fill)
        assert found
        assert len(set(found)) == len(found)


def test_distractors_belong_to_no_slot() -> None:
    parsed = template.parse("{=int 5 5} and {x:lines}")
    assert template.keys(parsed) == template.always(parsed) == {"x"}
    assert distractor("=int 500 500", Random(1)) == "500"


def test_rows_in_prose_follow_each_other_in_different_wordings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_LONGER", 0.0)
    size = Slot("size", parse_kind("int 2 9"), ("size",))
    name = Slot("name", parse_kind("noun"), ("name",))
    kind = Records((name, size), 4, 4, prose=("A {name} of {size}.", "Then {name}, {size}.", "Also a {name}."))
    for seed in range(20):
        value = kind.sample(Random(seed), "prose")
        assert len(value.data) == 4
        assert [word in value.text for word in ("A ", "Then ", "Also ")] == [True] * 3
        assert any("size" not in row for row in value.data)


def test_some_lists_are_longer_than_usual_for_their_kind() -> None:
    kind = Records((Slot("name", parse_kind("noun"), ("name",)),), 8, 11, ("{name}",), ("{name}",))
    lengths = [len(kind.sample(Random(seed), "table").data) for seed in range(200)]
    assert {8, 9, 10, 11} < set(lengths) and max(lengths) == 40
    assert 15 < sum(length > 11 for length in lengths) < 60
    assert all(len(kind.sample(Random(seed), "inline").data) < 12 for seed in range(200))


def test_rows_seldom_repeat_their_first_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_LONGER", 0.0)
    names = "pick " + "/".join("abcdefghijklmnopqrst")
    kind = Records((Slot("name", parse_kind(names), ("name",)),), 8, 8, ("{name}",), ("{name}",), ("{name}.",))
    rows = [kind.sample(Random(seed), mode).data for seed in range(20) for mode in ("table", "inline", "prose", "")]
    assert all(len(each) == 8 for each in rows)
    assert sum(len({row["name"].text for row in each}) for each in rows) > 7.5 * len(rows)


def test_tables_of_every_layout_print_all_cells() -> None:
    columns = (Slot("name", parse_kind("person"), ("name",)), Slot("note", parse_kind("pick a, b/c; d"), ("note",)))
    seen: set[str] = set()
    for seed in range(200):
        rows = [{column.key: column.kind.sample(Random(seed)) for column in columns}, {"name": Value("Ada Byron")}]
        text = print_table(columns, rows, Random(seed))
        assert all(value.text in text for row in rows for value in row.values())
        seen |= {mark for mark in ("\t", " | ", "<td>", '": "', '","', "|---|", "- ", "  ", "; ") if mark in text}
    assert len(seen) == 9


def test_values_that_rows_share_stand_above_them_or_are_repeated_by_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_SHARED", 1.0)
    names = ("day", "city", "first_name")
    columns = tuple(Slot(name, parse_kind(name), (name,)) for name in names)
    marked = headed = 0
    for seed in range(200):
        rows = [{column.key: column.kind.sample(Random(f"{seed}{at}")) for column in columns} for at in range(8)]
        text = print_table(columns, rows, Random(seed))
        assert all(value.text in text for row in rows for value in row.values())
        shared = [key for key in names if len({row[key].text for row in rows}) < 5]
        assert len(shared) == 1
        times = text.count(rows[0][shared[0]].text)
        marked += any(mark in text for mark in ('"', "''", "do.", "〃", "ditto", "idem"))
        headed += times == 1
    assert 40 < marked < 120
    assert headed > 190


def test_slots_of_a_generated_document_have_different_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    # Families name their slots without knowing the keys that generated tables have.
    family = Family("sums", tuple(Slot(key, parse_kind("money 1 9"), (key,)) for key in ("rows", "table", "k0")))
    monkeypatch.setattr(documents, "trained_families", lambda: (family,))
    borrowed = 0
    for seed in range(200):
        keys = [slot.key for slot in documents._procedural(Author(str(seed))).slots]
        assert len(set(keys)) == len(keys)
        borrowed += "other" in keys
    assert borrowed > 10


@pytest.mark.parametrize("line", ["items | records 1-2", "place | city"])
def test_a_slot_without_labels_is_named(line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"unlike {line!r}")):
        parse_family(f"n\n{line}\n---\nNothing.")


def test_text_that_denies_any_entries_has_an_empty_list() -> None:
    family = parse_family("n\nitems | records 1-2 | items\n  a | noun | item\n  >> {a}\n---\nNothing{items:none}.")
    kind = family.slots[0].kind
    assert kind.sample(Random(1), "none") == Value("", [])
    assert kind.ask(Random(1)).read(Value("", [])) == []


def test_sentences_of_several_families_share_a_document() -> None:
    seen = {example(0, Split.TRAIN, index).family for index in range(300)}
    assert {"mosaic", "collage", "single", "procedural"} <= seen


def test_values_stay_on_their_line_where_lines_are_broken() -> None:
    values = [Value("the blue door of the shed"), Value("", [{"a": Value("two words")}])]
    text = "The painter said that the blue door of the shed has two words written on it in white letters. " * 3
    seen = [noise.wrap(text, values, Random(seed)) for seed in range(60)]
    assert any(each.count("\n") > 4 for each in seen)
    for each in seen:
        quoted = each.replace("\n> ", "\n")
        assert quoted.count("the blue door of the shed") == quoted.count("two words") == 3


def test_fields_that_the_text_leaves_out_are_null_or_absent() -> None:
    slots = [Slot("a", parse_kind("person"), ("owner",)), Slot("b", parse_kind("date"), ("start date",))]
    for seed in range(60):
        question = ask_object(slots, {"a"}, Random(seed))
        record = question.read({"a": Value("Ada Byron", ("Ada", "Byron"))})
        jsonschema_rs.Draft202012Validator(with_quotes(question.schema)).validate(record)
        assert None in record.values() or len(record) < len(question.schema["properties"])


def test_money_is_read_without_its_layout() -> None:
    kind = Money(1, 90000)
    for seed in range(200):
        value = kind.sample(Random(seed))
        amount, currency = value.data
        digits = "".join(char for char in value.text if char.isdigit())
        if not any(mark in value.text for mark in ("k", "K", "thousand")):
            assert float(digits) in (amount, round(amount * 100))
        assert currency in value.text or any(symbol in value.text for symbol in (*"$€£¥₹", "zł"))


def test_numbers_times_and_days_are_said_in_words() -> None:
    assert [in_words(n) for n in (7, 21, 240, 306, 1066, 12500)] == [
        "seven",
        "twenty-one",
        "two hundred and forty",
        "three hundred and six",
        "one thousand and sixty-six",
        "twelve thousand five hundred",
    ]
    assert [ordinal(day) for day in (1, 12, 13, 20, 22, 30)] == [
        "first",
        "twelfth",
        "thirteenth",
        "twentieth",
        "twenty-second",
        "thirtieth",
    ]
    said = [said_time(datetime(1871, 5, 4, *clock), Random(2)) for clock in ((12, 0), (19, 30), (8, 45), (15, 10))]
    assert said == [
        "noon",
        "half past seven in the evening",
        "a quarter to nine in the morning",
        "ten past three in the afternoon",
    ]


@pytest.mark.parametrize(
    ("spec", "meaning"),
    [
        ("count 1 60", {"half a dozen": 6, "two dozen": 24, "three score": 60, "forty": 40}),
        ("minutes 10 200", {"half an hour": 30, "an hour and a half": 90}),
        ("days 1 30", {"a fortnight": 14, "a week": 7, "twelve days": 12}),
        ("months 1 60", {"a year and a half": 18, "half a year": 6, "one year and 2 months": 14}),
        ("years 1 100", {"a decade": 10, "a quarter of a century": 25}),
        ("share 5 95", {"half": 50, "one in five": 20, "three quarters": 75, "forty-one per cent": 41}),
    ],
)
def test_amounts_that_are_said_keep_their_meaning(spec: str, meaning: dict[str, int]) -> None:
    kind = parse_kind(spec)
    seen = {value.text: value.data for value in (kind.sample(Random(seed)) for seed in range(3000))}
    assert {text: seen.get(text) for text in meaning} == meaning
    for text, number in seen.items():
        assert not text[:1].isdigit() or " and " in text or text.startswith(str(number))


def test_later_dates_follow_the_date_before_them() -> None:
    for seed in range(200):
        author = Author(str(seed))
        start, end, paid = (parse_kind(spec).sample(author) for spec in ("date", "later 1 20", "later 0 5"))
        assert 1 <= (end.data - start.data).days <= 20
        assert 0 <= (paid.data - end.data).days <= 5


def test_numbers_are_implied_by_phrases() -> None:
    kind = parse_kind("meant 2=twice a day/mornings, and again at night, 3=a pear and two plums")
    seen = {value.text: value.data for value in (kind.sample(Random(seed)) for seed in range(60))}
    assert seen == {"twice a day": 2, "mornings, and again at night": 2, "a pear and two plums": 3}
    assert kind.ask(Random(1)).read(Value("twice a day", 2)) == 2


def test_classes_that_are_tied_fit_each_other() -> None:
    specs = ("tied end enum won, drawn, lost", "tied end bool glad ~ sad", "tied end meant 3=all, 1=one, 0=none")
    seen = set()
    for seed in range(60):
        author = Author(str(seed))
        seen.add(tuple(parse_kind(spec).sample(author).text for spec in specs))
    assert seen == {("won", "glad", "all"), ("drawn", "glad", "one"), ("drawn", "sad", "one"), ("lost", "sad", "none")}
    with pytest.raises(ValueError, match="can be tied"):
        parse_kind("tied end person")


def test_dates_of_other_centuries_and_months_are_in_their_range() -> None:
    for seed in range(200):
        day = parse_kind("date 1700 1750").sample(Random(seed))
        assert 1700 <= day.data.year <= 1760
        assert str(day.data.year) in day.text
        month = parse_kind("month 1900 1910").sample(Random(seed))
        assert str(month.data.year) in month.text


def test_slots_that_are_asked_in_vain_share_no_word_with_the_text() -> None:
    stated = [Slot("a", parse_kind("date"), ("harvest day",)), Slot("b", parse_kind("person"), ("farmer",))]
    text = "Farmer Ada Byron paid the customs duty for her barley; the calibration took a day, and the harvest began."
    seen: list[str] = []
    for seed in range(400):
        slots = unanswered(text, stated, stated, 2, Random(seed))
        assert len({slot.key for slot in slots}) == len(slots)
        seen += [label for slot in slots for label in slot.labels]
    assert len(set(seen)) > 200
    words = {word for label in seen for word in label.lower().split()}
    assert words.isdisjoint({"farmer", "customs", "duty", "calibrated", "calibration", "harvest", "harvested"})


def test_slots_of_which_a_text_has_only_some_words_are_asked_in_vain() -> None:
    asked = [Slot("a", parse_kind("date"), ("harvest day",))]
    text = "The harvest began. Ada paid the customs for her barley by card, and the insurance of the van."
    seen = [slot for seed in range(300) for slot in partly_named(text, asked, 1, Random(seed))]
    words = [set(re.findall(r"\w{3,}", label.lower())) for slot in seen for label in slot.labels]
    assert len({slot.labels for slot in seen}) > 40
    assert all(any(word[:5] not in text.lower() for word in each) for each in words)
    known = f"{text} harvest day".lower()
    shared = [any(word[:5] in known for label in slot.labels for word in label.split()) for slot in seen]
    assert sum(shared) > 0.9 * len(seen)
    assert not partly_named("Ωμέγα", [], 2, Random(1))


def test_contacts_are_asked_in_vain_only_where_there_are_none() -> None:
    stated = [Slot("a", parse_kind("person"), ("signed by", "seller"))]
    for text in ("Ada Byron, +44 20 7946 0000, ada@example.org", "Write me a mail, or call."):
        assert not any(unknown_contact(text, stated, Random(seed)) for seed in range(60))
    found = [unknown_contact("Sold on 2024-05-03 by Ada Byron", stated, Random(seed)) for seed in range(60)]
    labels = {slot.labels[0] for slots in found for slot in slots}
    assert labels == {"seller email", "seller phone", "seller mobile", "seller fax"}


def test_values_that_documents_lack_are_asked_for_often_as_null() -> None:
    absent = nullable = 0
    for index in range(600):
        sample = example(0, Split.TRAIN, index)
        for name, schema in sample.schema.get("properties", {}).items():
            if name in sample.record and _may_be_null(schema):
                nullable += 1
                absent += sample.record[name] is None
    assert 0.4 < absent / nullable < 0.75


def _may_be_null(schema: dict[str, Any]) -> bool:
    return (
        {"type": "null"} in schema.get("anyOf", ())
        or "null" in schema.get("type", "")
        or None in schema.get("enum", ())
    )


def test_phrases_of_slots_have_no_holes() -> None:
    slots = (slot for family in ALL for slot in family.slots)
    assert not any("{=" in repr(slot.kind) for slot in slots if not isinstance(slot.kind, Records))


def test_text_without_the_only_fact_is_asked_for_it_as_for_any_other() -> None:
    slot = Slot("lift", parse_kind("bool yes ~ no"), ("lift",))
    for seed in range(40):
        record = documents._question("The roof is new.", [slot], {}, [], Random(seed)).read({})
        parts = [part for value in record.values() for part in (value.values() if isinstance(value, dict) else [value])]
        assert not any(parts)


def test_parts_of_codes_beside_codes_are_errors_with_their_place() -> None:
    with pytest.raises(ValueError, match=r"orders.txt:12: '##' is no code beside longer ones: write //"):
        parse_family("x\na | noun | thing\nb | code A-####/##/## ### ### | number", "orders.txt", 10)
    assert parse_kind("code A//#").sample(Random(1)).text.startswith("A/")
    assert parse_kind("code #@/##@/Room #")


def test_labels_of_a_family_are_of_one_slot_and_every_slot_is_in_a_wording() -> None:
    for family in trained_families():
        _check_slots(family.name, family.slots, (*family.wordings, *family.held_out))
        for kind in (slot.kind for slot in family.slots):
            if isinstance(kind, Records) and (kind.rows or kind.inline or kind.prose):
                _check_slots(family.name, kind.columns, (*kind.rows, *kind.inline, *kind.prose))


def _check_slots(name: str, slots: Sequence[Slot], wordings: Sequence[str]) -> None:
    labels = [label for slot in slots for label in slot.labels]
    assert len(labels) == len(set(labels)), name
    used = {key for wording in wordings for key in template.keys(template.parse(wording))}
    assert used == {slot.key for slot in slots}, name


def test_lists_do_not_repeat_their_first_column_as_long_as_there_are_others() -> None:
    kind = (
        parse_family(
            "x\nitems | records 9-10 | items\n  a | pick one/two/six/ten/red/tin/ash/oak/elm/fir | name\n"
            "  b | int 1 9 | b\n  > {a} {b}\n---\n{items}"
        )
        .slots[0]
        .kind
    )
    for seed in range(60):
        author = Author(str(seed))
        author.clean = True
        names = [row["a"].text for row in kind.sample(author).data if "a" in row]
        assert len(names) - len(set(names)) <= 1
        assert len(names) <= 11


def test_slots_of_documents_around_are_not_asked_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Sequence[Slot]] = []

    def record(text: str, slots: Sequence[Slot], *_: object) -> list[Slot]:
        seen.append(slots)
        return []

    monkeypatch.setattr(documents, "unanswered", record)
    monkeypatch.setattr(documents, "partly_named", record)
    slot, other = (Slot(label, parse_kind("person"), (label,)) for label in ("buyer", "courier"))
    for seed in range(40):
        documents._question("A text.", [slot, slot], {}, [], Random(seed), [other])
    assert len(seen) > 10
    assert all(other in slots for slots in seen)
    text, others = documents._among_others("A text.", [slot], Author("1"))
    assert "A text." in text
    assert others


def test_most_times_are_of_the_day() -> None:
    times = [parse_kind("time").sample(Random(seed)).data for seed in range(400)]
    assert 0.8 < sum(7 <= moment.hour < 22 for moment in times) / len(times) < 0.97


def test_only_documents_of_a_family_are_called_like_it() -> None:
    topics = {topic.titles[0].lower() for topic in implied.topics()}
    names = {family.name for family in trained_families()}
    assert topics & names, "the names of some topics are those of families"
    sources = [documents._topical(Author(str(seed))) for seed in range(60)]
    assert names.isdisjoint(source.family for source in sources)
