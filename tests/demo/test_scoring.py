"""Scores of records, field by field."""

from __future__ import annotations

import pytest

from constrain.demo.scoring import Score, compare, parse, score


@pytest.mark.parametrize(
    ("answer", "gold", "hits"),
    [
        ('{"a": 1, "b": "x"}', {"a": 1, "b": "x"}, (2, 2)),
        ('{"b": "x", "a": 1.0}', {"a": 1, "b": "x"}, (2, 2)),
        ('{"a": true}', {"a": 1}, (0, 1)),
        ('{"a": null}', {"a": None}, (1, 1)),
        ('{"a": 1, "c": 2}', {"a": 1}, (1, 2)),
        ('{"a": [{"x": 1}, {"x": 3}]}', {"a": [{"x": 1}, {"x": 2}]}, (1, 2)),
        ('{"a": []}', {"a": []}, (1, 1)),
        ('{"a": ["x"]}', {"a": []}, (0, 2)),
        ("{", {"a": 1, "b": 2}, (0, 2)),
        ('"x"', "x", (1, 1)),
    ],
)
def test_fields_are_leaves(answer: str, gold: object, hits: tuple[int, int]) -> None:
    assert compare(parse(answer), gold) == hits


def test_score_counts_records_fields_and_validity() -> None:
    answers = [
        ('{"a": 1, "b": 2}', {"a": 1, "b": 2}, {}),
        ('{"a": 1, "b": 3}', {"a": 1, "b": 2}, {"never": True}),
        ("no", {"a": 1, "b": 2}, {}),
        ('{"a": 5, "b": 5}', {"a": 1, "b": 2}, {}),
    ]
    judged = score(answers, lambda record, schema: "never" not in schema)
    assert judged == Score(valid=0.5, fields=3 / 8, records=0.25)
    assert str(judged) == "valid 50.0%, fields 37.5%, records 25.0%"
