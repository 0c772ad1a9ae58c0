"""Comparison of records with gold."""

from __future__ import annotations

from typing import Any

import pytest

from constrain.evaluation import Score, compare, correctness

Found = list[tuple[str, str]]


def outcomes(found: Any, gold: Any) -> Found:
    return sorted((pair.field, pair.outcome.value) for pair in compare(found, gold))


@pytest.mark.parametrize(
    ("found", "gold", "expected"),
    [
        ({"a": 1}, {"a": 1}, [("/a", "right")]),
        ({"a": 1}, {"a": 2}, [("/a", "wrong")]),
        ({"a": 1}, {"a": None}, [("/a", "invented")]),
        ({"a": None}, {"a": 1}, [("/a", "missed")]),
        ({"a": None}, {}, [("/a", "absent")]),
        ({}, {"a": 1}, [("/a", "missed")]),
        ({"a": []}, {"a": None}, [("/a", "absent")]),
        ({"a": [1]}, {"a": []}, [("/a", "absent"), ("/a/*", "invented")]),
        ({"a": {"b": 1}}, {"a": "b"}, [("/a", "missed"), ("/a/b", "invented")]),
        ({"a/b": 1}, {"a/b": 1}, [("/a~1b", "right")]),
        (None, {"a": {"b": 1, "c": None}}, [("", "absent"), ("/a/b", "missed"), ("/a/c", "absent")]),
    ],
)
def test_outcomes(found: Any, gold: Any, expected: Found) -> None:
    assert outcomes(found, gold) == expected


def test_items_are_compared_with_those_they_have_most_in_common_with() -> None:
    gold = [{"name": "Ann", "age": 3}, {"name": "Ben", "age": 4}, {"name": "Cid", "age": 5}]
    found = [{"name": "Cid", "age": 5}, {"name": "Ann", "age": 4}, {"name": "Ben", "age": 4}]
    pairs = {pair.found_path: pair.gold_path for pair in compare(found, gold)}
    assert pairs == {(one, name): (other, name) for one, other in ((0, 2), (1, 0), (2, 1)) for name in ("name", "age")}


def test_items_with_nothing_in_common_are_compared_in_order() -> None:
    pairs = compare(["x", "b", "y", "z"], ["a", "b", "c"])
    assert [(pair.found, pair.gold) for pair in pairs] == [("x", "a"), ("b", "b"), ("y", "c"), ("z", None)]


def test_common_nulls_do_not_make_items_alike() -> None:
    pairs = compare([{"a": None, "b": 2}], [{"a": None, "b": 1}, {"a": 7, "b": 2}])
    assert [(pair.found_path, pair.gold_path) for pair in pairs][:2] == [((0, "a"), (1, "a")), ((0, "b"), (1, "b"))]


def test_lists_within_lists() -> None:
    gold = [{"tags": ["x", "y"]}, {"tags": ["z"]}]
    assert Score.of(compare([{"tags": ["z"]}, {"tags": ["y", "x"]}], gold)) == Score(right=3)


def test_a_null_of_an_item_that_gold_lacks_is_not_right_and_does_not_count() -> None:
    pairs = compare([{"a": 1, "b": None}], [])
    assert not any(pair.is_right for pair in pairs)
    assert Score.of(pairs) == Score(invented=1)


def test_correctness_is_by_pointer_into_the_record() -> None:
    found = {"who": "Ann", "marks": [{"n": 2}, {"n": 9}], "none": []}
    gold = {"who": "Ben", "marks": [{"n": 1}, {"n": 2}], "none": []}
    assert correctness(found, gold) == {"/who": False, "/marks/0/n": True, "/marks/1/n": False, "/none": True}


def test_scores() -> None:
    score = Score(right=6, wrong=2, invented=1, missed=4, absent=3)
    assert (score.precision, score.recall) == (6 / 9, 6 / 12)
    assert score.f1 == pytest.approx(2 * (2 / 3) * (1 / 2) / (2 / 3 + 1 / 2))
    assert score.accuracy == 9 / 16


def test_scores_of_nothing() -> None:
    assert (Score().precision, Score().recall, Score().f1, Score().accuracy) == (None, None, None, None)
    assert (Score(invented=2).precision, Score(invented=2).recall) == (0.0, None)
