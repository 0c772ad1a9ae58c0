"""Clean documents: as they are written, with common names and things, and without noise."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from constrain.demo.synth import Split, common, documents, example, noise, pools
from constrain.demo.synth.family import trained_families
from constrain.demo.synth.habits import Author, is_clean
from constrain.demo.synth.kinds import Value
from constrain.demo.synth.specs import parse_kind
from constrain.demo.synth.wordlists import words


def clean_author(seed: int) -> Author:
    author = Author(str(seed))
    author.clean = True
    return author


def test_clean_authors_know_common_names_only() -> None:
    firsts = {*words("first_names"), *words("common_first_names")}
    lasts = {*words("last_names"), *words("common_last_names")}
    cities = {*words("cities"), *words("common_cities")}
    for seed in range(200):
        author = clean_author(seed)
        assert pools.first_name(author) in firsts
        assert pools.last_name(author).split("-")[0] in {name.split("-")[0] for name in lasts}
        assert pools.city(author) in cities


def test_clean_authors_write_streets_things_and_topics_of_the_lists() -> None:
    streets = {street.strip("# ") for street in words("common_streets")}
    subjects = {subject.removeprefix("the ") for subject in words("common_subjects")}
    for seed in range(200):
        author = clean_author(seed)
        street = pools.street(author)
        assert any(name in street for name in streets) and any(char.isdigit() for char in street)
        product = pools.product(author)
        assert any(thing in product for thing in words("common_things"))
        topic = pools.topic(author)
        assert any(topic.endswith(subject) for subject in subjects)
        assert pools.filler(author) in words("fillers")
        assert pools.coined(author) in words("nouns")


def test_clean_authors_keep_phrases_as_they_are() -> None:
    kind = parse_kind("pick the garden wall")
    assert {kind.sample(clean_author(seed)).text for seed in range(200)} == {"the garden wall"}


def test_firms_are_a_name_with_a_trade_or_two_last_names() -> None:
    firms = [common.company(clean_author(seed)) for seed in range(300)]
    assert all(" & " in firm or firm.endswith(words("common_trades")) for firm in firms)
    assert len(set(firms)) > 280


def test_near_half_of_the_training_documents_are_clean_and_have_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped: list[bool] = []

    def wrap(text: str, values: Sequence[Value], rng: Random) -> str:
        wrapped.append(is_clean(rng))
        return text

    monkeypatch.setattr(noise, "wrap", wrap)
    for index in range(300):
        example(0, Split.TRAIN, index)
    assert 145 < len(wrapped) < 185
    assert not any(wrapped)


def test_clean_documents_are_of_families_topics_roles_and_groups() -> None:
    known = {family.name for family in trained_families()} | {"topical", "roles", "groups"}
    assert {example(0, Split.TRAIN, index, clean=1.0).family for index in range(200)} <= known


@pytest.mark.parametrize("split", [Split.WORDINGS, Split.FAMILIES])
def test_documents_that_are_held_out_are_never_clean(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [example(0, split, index) for index in range(50)]
    monkeypatch.setattr(documents, "_IMPLIED", 1.1)
    assert before == [example(0, split, index, clean=1.0) for index in range(50)]
