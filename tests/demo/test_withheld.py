"""Fields that a document names without telling their values."""

from __future__ import annotations

import re

from constrain.demo.synth import Split, example, template
from constrain.demo.synth.documents import _with_withheld
from constrain.demo.synth.habits import Author
from constrain.demo.synth.kinds import Value
from constrain.demo.synth.slots import Slot
from constrain.demo.synth.specs import parse_kind
from constrain.demo.synth.withheld import can_be_withheld, withhold
from constrain.demo.synth.wordlists import words

TEXT = "The hall was let to Ada Byron.\nShe signed on 3 May 2024. The keys lie with the porter."
TENANT = Value("Ada Byron", ("Ada", "Byron"))


def sections() -> dict[str, list[str]]:
    blocks = "\n".join(("", *words("withheld"))).split("\n# ")[1:]
    return {block.split("\n")[0]: block.split("\n")[1:] for block in blocks}


def withheld(spec: str, label: str, held_out: bool = False, count: int = 400) -> list[str]:
    slot = Slot("a", parse_kind(spec), (label,))
    return [withhold(TEXT, slot, [(20, 29)], held_out, Author(str(seed))) for seed in range(count)]


def test_sentences_have_a_label_and_what_is_printed_has_none() -> None:
    assert set(sections()) == {"printed", "said", "printed held out", "said held out"}
    for name, lines in sections().items():
        assert len(set(lines)) == len(lines) > 6
        for line in lines:
            keys = template.keys(template.parse(line.lstrip("!")))
            assert keys == ({"label"} if "said" in name else set()), line


def test_held_out_words_are_never_trained_on() -> None:
    for name in ("printed", "said"):
        assert set(sections()[name]).isdisjoint(sections()[f"{name} held out"])
    trained, held_out = withheld("money 5 900", "rent"), withheld("money 5 900", "rent", held_out=True)
    assert any("The rent is still open." in text for text in trained)
    assert any("The rent remains to be seen." in text for text in held_out)
    assert not any("remains to be seen" in text for text in trained)


def test_a_label_stands_in_a_sentence_or_on_a_line_of_its_own_beside_the_text() -> None:
    seen = withheld("money 5 900", "rent")
    assert all(re.search("rent", text, re.IGNORECASE) for text in seen)
    assert all("Ada Byron." in text and "3 May 2024" in text for text in seen)
    assert sum(bool(re.search(r"^rent\W", text, re.IGNORECASE | re.MULTILINE)) for text in seen) > 120
    assert sum("The rent " in text for text in seen) > 60


def test_labels_that_no_article_fits_stand_before_what_is_printed() -> None:
    lines = [line for text in withheld("person", "signed by") for line in text.split("\n")]
    assert sum(bool(re.match(r"signed[ _]by\W", line, re.IGNORECASE)) for line in lines) == 400


def test_values_of_the_form_asked_for_stand_only_where_they_mislead_nobody() -> None:
    years = re.compile(r"\b(19|20)\d\d\b")
    said = {
        line
        for text in withheld("date", "end of the lease", count=2000)
        for line in re.split(r"(?<=[.?!]) |\n", text)
        if years.search(line) and "3 May" not in line
    }
    assert said
    marks = (
        "announced",
        "known on",
        "discussed",
        "asked for",
        "expected",
        "not before",
        "open, ",
        "still no",
        "less than",
    )
    assert all(any(mark in line for mark in marks) for line in said)


def test_truths_classes_and_lists_are_not_withheld() -> None:
    for spec in ("bool yes~no", "enum a, b", "list city 1-3"):
        assert not can_be_withheld(Slot("a", parse_kind(spec), ("matter",)))
    assert can_be_withheld(Slot("a", parse_kind("code"), ("permit",)))


def test_a_document_withholds_what_it_does_not_state() -> None:
    slots = [Slot("a", parse_kind("person"), ("tenant",)), Slot("b", parse_kind("money 5 900"), ("rent",))]
    own = 0
    for seed in range(100):
        text, chosen = _with_withheld(TEXT, slots, {"a": TENANT}, False, Author(str(seed)))
        assert len(chosen) <= 2
        assert slots[0] not in chosen
        assert "Ada Byron" in text
        assert all(any(label in text.lower().replace("_", " ") for label in slot.labels) for slot in chosen)
        own += slots[1] in chosen
    assert 30 < own < 100


def test_examples_ask_for_what_they_name_without_telling_it() -> None:
    named = 0
    for index in range(600):
        sample = example(0, Split.TRAIN, index)
        text = re.sub(r"[\W_]", "", sample.text.lower())
        record = sample.record if isinstance(sample.record, dict) else {}
        empty = [re.sub(r"[\W_]", "", name.lower()) for name, value in record.items() if value is None]
        named += any(name in text for name in empty if len(name) > 5)
    assert named > 28


def test_lists_without_items_are_empty_where_null_is_not_allowed() -> None:
    empty = 0
    for index in range(1500):
        sample = example(0, Split.TRAIN, index)
        for name, value in sample.record.items() if isinstance(sample.record, dict) else ():
            empty += value == [] and sample.schema["properties"][name].get("type") == "array"
    assert empty > 15
