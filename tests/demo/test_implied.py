"""Matters that texts settle by implication: their files, which are told of a text, and where the sentences go."""

from __future__ import annotations

import re
from random import Random

import pytest

from constrain.demo.synth import Split, example, implied, template
from constrain.demo.synth.implied import (
    Classes,
    Implied,
    Matter,
    about_things,
    all_matters,
    parse_matter,
    tell,
    topics,
    woven,
)
from constrain.demo.synth.kinds import Boolean, Value
from constrain.demo.synth.plain_answers import plain_answer
from constrain.demo.synth.quantities import Integer
from constrain.demo.synth.questions import ask_object
from constrain.demo.synth.slots import Slot
from constrain.demo.synth.specs import parse_kind

LIFT = parse_matter(
    "lift, elevator | whether there is a lift\n! stairs\n+ Press 5. / You ride up.\n- Many steps.\n~ The roof is new."
)
PLACE = parse_matter("work place | where\n= on site/office: We sit in {=city}.\n= remote/home office: Stay in bed.")


def of_kind(kind: type) -> list[Matter]:
    return [matter for matter in all_matters() if isinstance(matter.kind.asked, kind)]


def test_matters_have_labels_answers_and_sentences_that_leave_them_open() -> None:
    assert (LIFT.labels, LIFT.about, LIFT.neutral) == (
        ("lift", "elevator"),
        "whether there is a lift",
        ("The roof is new.",),
    )
    assert LIFT.kind == Implied(((True, ("Press 5.", "You ride up.")), (False, ("Many steps.",))), Boolean((), ()))
    assert LIFT.signs == {" stairs", " lift", " eleva"}
    assert PLACE.kind.asked == Classes({"on site": ("on site", "office"), "remote": ("remote", "home office")})
    counted = parse_matter("rooms | how many\n= 1: One.\n= 2: Two.").kind
    assert counted.told == ((1, ("One.",)), (2, ("Two.",)))
    assert isinstance(counted.asked, Integer)
    with pytest.raises(KeyError, match="good"):
        parse_matter("lift | whether\n+ Press 5.\n= good: Many steps.")


def test_matters_are_about_each_of_several_things() -> None:
    blocks = about_things(
        "# in rent, with # | whether # is in the rent\n* the heating, TV\n+ # is in. / All with #.\n- No #."
    )
    assert blocks == [
        "heating in rent, with heating | whether the heating is in the rent\n"
        "+ The heating is in. / All with the heating.\n- No heating.",
        "TV in rent, with TV | whether TV is in the rent\n+ TV is in. / All with TV.\n- No TV.",
    ]
    assert about_things("lift | whether\n+ Press 5.") == ["lift | whether\n+ Press 5."]
    labels = {label for matter in all_matters() for label in matter.labels}
    assert {"breakfast included", "parking included", "chest X-ray done", "has balcony"} <= labels
    assert not any("#" in sentence for matter in all_matters() for _, told in matter.kind.told for sentence in told)


def test_there_are_many_matters_of_each_sort_with_several_sentences_for_each_answer() -> None:
    assert len(of_kind(Boolean)) >= 250
    assert len(of_kind(Classes)) >= 120
    assert len(topics()) >= 20
    for matter in all_matters():
        assert matter.labels and matter.about and matter.signs
        assert all(len(set(sentences)) == len(sentences) >= 3 for _, sentences in matter.kind.told), matter.labels
    assert all({answer for answer, _ in matter.kind.told} == {True, False} for matter in of_kind(Boolean))


def test_spellings_of_classes_differ_between_the_classes() -> None:
    for matter in of_kind(Classes):
        assert isinstance(matter.kind.asked, Classes)
        for style in implied._SPELLINGS:
            spelled = [{style(name) for name in names} for names in matter.kind.asked.options.values()]
            assert sum(map(len, spelled)) == len(set().union(*spelled)), matter.labels


def test_sentences_are_templates_of_distractors_only() -> None:
    for topic in topics():
        for title in topic.titles:
            assert template.keys(template.parse(title)) == set()
    for matter in all_matters():
        for sentence in (*matter.neutral, *(each for _, told in matter.kind.told for each in told)):
            assert template.keys(template.parse(sentence)) == set(), sentence
            for kind in re.findall(r"\{=([^}]*)\}", sentence):
                parse_kind(kind)


def test_matters_that_a_text_may_settle_are_not_told() -> None:
    assert tell([LIFT], "Take the stairs, please.", 1, Random(1)) == []
    assert tell([LIFT], "The elevators are new.", 1, Random(1)) == []
    assert len(tell([LIFT], "A shoplifter came upstairs.", 1, Random(1))) == 1
    other = parse_matter("view | whether\n+ From the stairs one sees the sea.\n- From the stairs one sees a wall.")
    chosen = [tell([LIFT, other], "", 2, Random(seed)) for seed in range(60)]
    assert {len(told) for told in chosen} == {1, 2}
    assert not any("stairs" in each.sentence for told in chosen if len(told) == 2 for each in told)


def test_answers_follow_from_the_sentence_or_are_left_open() -> None:
    answers: set[tuple[str, object]] = set()
    for seed in range(900):
        told = tell([LIFT], "", 1, Random(seed))[0]
        sentence = told.sentence.removeprefix("Lift: ").removeprefix("Elevator: ")
        answers.add((sentence, told.value and told.value.data))
    meant = {("Press 5.", True), ("You ride up.", True), ("Many steps.", False), ("The roof is new.", None), ("", None)}
    plain = {
        ("no", False),
        ("never.", False),
        ("✗ lift", False),
        ("Lift? No.", False),
        ("yes", True),
        ("[x] lift", True),
    }
    assert meant | plain <= answers
    assert all(truth is None for sentence, truth in answers if sentence in ("", "The roof is new."))


def test_plain_answers_are_statements_with_the_words_of_a_label() -> None:
    remote = ["remote work possible", "home office allowed"]
    said = {answer: {plain_answer(remote, answer, Random(seed)) for seed in range(2000)} for answer in (True, False)}
    assert {"remote work welcome.", "home office: OK", "remote work possible", "home office allowed: yes"} <= said[True]
    assert {"remote work not possible", "no remote work possible.", "home office - forbidden!"} <= said[False]
    assert not said[True] & said[False]
    every = {(matter.labels, answer) for matter in of_kind(Boolean) for answer in (True, False)}
    assert not any("  " in plain_answer(labels, answer, Random(1)) for labels, answer in every)


def test_open_matters_are_null_or_left_out_or_unknown_where_the_schema_says_so() -> None:
    place = parse_matter("work place | where\n= on site: Here.\n= remote: There.\n~ It is green.")
    seen = set()
    for seed in range(600):
        rng = Random(seed)
        told = tell([place], "", 1, rng)[0]
        facts = {told.slot.key: told.value} if told.value else {}
        question = ask_object([told.slot], set(facts), rng, nest=False)
        record = question.read(facts)
        if told.sentence in ("", "It is green."):
            seen |= {"".join(str(value).lower().split()) for value in record.values()} or {"absent"}
    assert {"none", "absent", "unknown"} < seen
    assert not any("site" in answer or "remote" in answer for answer in seen)


def test_classes_are_asked_by_spellings_and_sometimes_by_codes() -> None:
    kind = Classes({"on site": ("on site", "office"), "remote": ("remote",)})
    seen = set()
    for seed in range(400):
        ask = kind.ask(Random(seed))
        value = ask.read(Value("We sit here.", "on site"))
        assert value in ask.schema["enum"]
        if "description" in ask.schema:
            assert f"{value} = o" in ask.schema["description"]
        seen.add(value)
    assert {"on_site", "onSite", "ON_SITE", "on site", "on-site", "office", "A", "2", "K1"} <= seen


def test_sentences_go_between_others_and_never_into_a_value() -> None:
    text = "It was sold on Monday. The motto is: Work hard. Play hard. See you tomorrow."
    quoted = (text.index("Work"), text.index(" See"))
    seen = set()
    for seed in range(200):
        out = woven(text, ["Mind the step.", "No dogs."], [quoted], Random(seed))
        assert "Work hard. Play hard." in out
        assert out.count("Mind the step.") == out.count("No dogs.") == 1
        assert re.sub(r"\s*(Mind the step|No dogs)\.\s*", " ", out).split() == text.split()
        seen.add(out.index("Mind"))
    assert len(seen) > 4


def test_examples_of_training_alone_have_implied_matters() -> None:
    labels = {matter.about for matter in all_matters()}

    def shares(split: Split) -> float:
        asked = [str(example(0, split, index).schema) for index in range(300)]
        return sum(any(about in schema for about in labels) for schema in asked) / 300

    assert shares(Split.TRAIN) > 0.05
    assert shares(Split.FAMILIES) < 0.02


def test_slots_of_matters_are_asked_in_any_case() -> None:
    slot = Slot("a", LIFT.kind, LIFT.labels)
    value = LIFT.kind.sample(Random(1))
    assert value.text in ("Press 5.", "You ride up.", "Many steps.")
    assert slot.kind.ask(Random(1)).read(value) == value.data
