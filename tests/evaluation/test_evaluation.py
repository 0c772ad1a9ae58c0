"""The evaluation of a run, compared with a table that was computed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from constrain.errors import ArgumentError, RunError
from constrain.evaluation import Confusion, Documents, Evaluation, Score, evaluate
from constrain.evaluation.spans import SpanScore
from constrain.runs import Line


def line(source: str, record: Any, **members: Any) -> Line:
    return {"key": f"key of {source}", "source": source, "record": record, **members}


def order(city: str | None, paid: bool | None, day: str | None, *lines: tuple[str, float | None]) -> dict[str, Any]:
    items = [{"item": item, "price": price} for item, price in lines]
    return {"city": city, "paid": paid, "day": day, "lines": items}


GOLD = [
    line("a", order("Lyon", True, "2024-05-06", ("pen", 1.5), ("ink", 4))),
    line("b", order("Oslo", False, None, ("cup", 3))),
    line("c", order(None, True, "2024-05-07")),
    line("d", order("Rome", None, "2024-05-08", ("hat", 20), ("tie", None))),
    line("e", order("Lyon", False, "2024-05-09")),
]
FOUND = [
    # The same, in other forms: another order of lines, numbers and dates.
    line("a", order(" Lyon", True, "2024-05-06T00:00:00", ("ink", 4.0), ("pen", 1.5))),
    # Another city and an invented day; one line is right, one invented.
    line("b", order("oslo", False, "2024-01-01", ("cup", 3), ("lid", None))),
    # An invented city and a missed day.
    line("c", order("Nice", True, None)),
    # A wrong boolean where there is none; a line with a wrong price, and a missed line.
    line("d", order("Rome", True, "2024-05-08", ("hat", 2))),
    {"key": "key of e", "source": "e", "error": {"type": "ExtractionError", "message": "too long"}},
]

#                        right wrong invented missed absent
BY_HAND = {
    "/city": Score(2, 1, 1, 1, 0),
    "/paid": Score(3, 0, 1, 1, 0),
    "/day": Score(2, 0, 1, 2, 0),
    "/lines/*/item": Score(4, 0, 1, 1, 0),
    "/lines/*/price": Score(3, 1, 0, 0, 0),
    "/lines": Score(0, 0, 0, 0, 1),
}


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    return evaluate(FOUND, GOLD)


def test_scores_by_field(evaluation: Evaluation) -> None:
    assert dict(evaluation.fields) == BY_HAND


def test_the_total(evaluation: Evaluation) -> None:
    assert evaluation.total == Score(right=14, wrong=2, invented=4, missed=5, absent=1)
    assert evaluation.total.precision == 14 / 20
    assert evaluation.total.recall == 14 / 21
    assert evaluation.total.f1 == pytest.approx(28 / 41)


def test_documents(evaluation: Evaluation) -> None:
    assert evaluation.documents == Documents(gold=5, missing=0, failed=1, right=1)


def test_confusion(evaluation: Evaluation) -> None:
    expected = Confusion(["false", "true", "null"], [[1, 0, 0], [0, 2, 0], [0, 1, 0]])
    assert evaluation.confusions == {"/paid": expected}
    assert not expected.is_diagonal


def test_differences(evaluation: Evaluation) -> None:
    found = {(each.source, each.pair.field, each.pair.outcome.value) for each in evaluation.differences}
    assert len(evaluation.differences) == 11
    assert {("b", "/city", "wrong"), ("c", "/city", "invented"), ("e", "/paid", "missed")} <= found


def test_case_may_be_ignored() -> None:
    assert evaluate(FOUND, GOLD, ignore_case=True).fields["/city"] == Score(3, 0, 1, 1, 0)


def test_as_json(evaluation: Evaluation) -> None:
    written = evaluation.to_json()
    assert written["total"] == {
        **{"right": 14, "wrong": 2, "invented": 4, "missed": 5, "absent": 1},
        **{"precision": 0.7, "recall": 2 / 3, "f1": 28 / 41},
    }
    assert written["documents"] == {"gold": 5, "missing": 0, "failed": 1, "right": 1}
    assert written["reliability"] is None and written["spans"] == {}
    assert {
        **{"source": "d", "pointer": "/lines/0/price", "outcome": "wrong"},
        **{"gold": 20, "found": 2, "probability": None},
    } in written["differences"]


# Which lines belong together


def test_the_last_line_of_a_source_and_part_counts() -> None:
    old = {"key": "1", "source": "a", "part": {"page": 1, "span": [0, 9]}, "record": {"x": 1}}
    new = {**old, "key": "2", "record": {"x": 2}}
    other = {"key": "3", "source": "a", "part": {"page": 2, "span": [9, 12]}, "record": {"x": 3}}
    gold = [{"key": "0", "source": "a", "part": {"page": 1}, "record": {"x": 2}}]
    assert evaluate([old, new, other], gold).total == Score(right=1)


def test_parts_may_be_named_by_anything() -> None:
    line = {"key": "k", "source": "a", "part": {"rows": [1, 2], "span": [0, 3]}, "record": {"x": 1}}
    assert evaluate([line], [{**line, "part": {"rows": [1, 2]}}]).total.right == 1
    pages = ({**line, "part": {"page": number}} for number in (1, 1.0))  # as a library of tables writes it
    assert evaluate([next(pages)], [next(pages)]).total.right == 1


def test_lines_without_a_source_are_found_by_their_key() -> None:
    lines = [{"key": name, "source": None, "record": {"x": name}} for name in "ab"]
    gold = [{"key": name, "source": None, "record": {"x": name}} for name in "ba"]
    assert evaluate(lines, gold).total == Score(right=2)


def test_documents_that_are_missing_are_missed() -> None:
    evaluation = evaluate(FOUND[:1], GOLD[:2])
    assert evaluation.documents == Documents(gold=2, missing=1, failed=0, right=1)
    assert evaluation.fields["/city"] == Score(right=1, missed=1)


def test_gold_of_other_documents_is_refused() -> None:
    with pytest.raises(RunError, match="no line of gold has the source"):
        evaluate(FOUND, [line("z", {})])


def test_gold_without_a_record_is_refused() -> None:
    with pytest.raises(RunError, match="gold of e has an error instead of a record"):
        evaluate(FOUND, FOUND)


@pytest.mark.parametrize("lines", ["gold.jsonl", Path("gold.jsonl"), {"source": "a"}, None])
def test_what_is_no_list_of_lines_is_refused(lines: Any) -> None:
    with pytest.raises(ArgumentError, match="lines must be the lines that read_lines returns"):
        evaluate(lines, GOLD)
    with pytest.raises(ArgumentError, match="gold must be the lines that read_lines returns"):
        evaluate(FOUND, lines)


def test_gold_without_lines_is_refused() -> None:
    with pytest.raises(RunError, match="gold has no records"):
        evaluate(FOUND, [])


def test_a_run_that_has_not_written_anything_misses_everything() -> None:
    assert evaluate([], GOLD).documents == Documents(gold=5, missing=5, failed=0, right=0)


# Marks, spans and probabilities


def test_of_a_record_that_was_reviewed_in_part_only_that_part_counts() -> None:
    gold = line("a", order("Lyon", False, None, ("pen", 1.5)), marks={"/city": "right", "/lines": "corrected"})
    assert dict(evaluate(FOUND, [gold]).fields) == {
        "/city": Score(right=1),
        "/lines/*/item": Score(right=1),
        "/lines/*/price": Score(right=1),
    }


def test_values_that_gold_lacks_count_if_all_of_it_was_reviewed() -> None:
    gold = line("a", {"city": "Lyon"}, marks={"/city": "right"})
    assert evaluate(FOUND, [gold]).total == Score(right=1, invented=6)


def test_spans_of_values_that_are_compared() -> None:
    places = {"/names/0": [0, 4], "/names/1": [10, 14], "/names/2": [20, 24]}
    gold = [line("a", {"names": ["Ann", "Ben", "Cid"]}, spans=places), line("b", {"names": ["Ann"]})]
    places = {"/names/0": [20, 24], "/names/1": [2, 6], "/names/2": [50, 53]}
    found = [
        line("a", {"names": ["Cid", "Ann", "Dan"]}, spans=places),
        line("b", {"names": ["Ann"]}, spans={"/names/0": [0, 1]}),  # does not count: gold has no spans
    ]
    (score,) = evaluate(found, gold).spans.values()
    assert (score.gold, score.found, score.overlapping, score.exact) == (3, 3, 2, 1)
    assert (score.precision, score.recall, score.f1) == (2 / 3, 2 / 3, 2 / 3)
    assert score.mean_overlap == pytest.approx((1 + 2 / 6 + 0) / 3)


def test_spans_may_lack_or_be_empty() -> None:
    empty, other = [3, 3], [4, 4]
    pairs = [(None, [1, 2]), ([1, 2], None), (None, None), (empty, empty), (empty, other), ([0, 3], empty)]
    score = SpanScore.of(pairs)
    assert score == SpanScore(gold=4, found=4, overlapping=1, exact=1, mean_overlap=1 / 4)


def test_probabilities_of_values_and_nulls() -> None:
    confidence = {"/city": 0.9, "/paid": 0.6, "/day": 0.8, "/lines/0/item": 0.7, "/lines/0/price": 0.5}
    told = line("b", FOUND[1]["record"], confidence={name: {"probability": p} for name, p in confidence.items()})
    evaluation = evaluate([told], GOLD[1:2])
    assert evaluation.reliability is not None
    # Right are /paid, item and price; wrong are /city and /day, which are surest.
    assert evaluation.reliability.count == 5
    assert evaluation.reliability.auroc == 0
    assert [(point.coverage, point.risk) for point in evaluation.reliability.risk_coverage] == [
        *[(0.2, 1.0), (0.4, 1.0), (0.6, 2 / 3), (0.8, 0.5), (1.0, 0.4)]
    ]
    assert [each.pair.field for each in evaluation.differences][:2] == ["/city", "/day"]


def test_a_source_is_the_same_with_and_without_the_folder_it_is_in() -> None:
    found = evaluate([line("./mails/a.txt", {"x": 1})], [line("mails/a.txt", {"x": 1})])
    assert found.documents == Documents(gold=1, missing=0, failed=0, right=1)


@pytest.mark.parametrize("wrong", [{"record": {}}, {"source": None, "record": {}}, "a.txt", None])
def test_a_line_that_cannot_be_matched_is_named(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match=r"lines\[1\] must be a line of read_lines, with a source or a key"):
        evaluate([FOUND[0], wrong], GOLD)
    with pytest.raises(ArgumentError, match=r"gold\[0\] must be"):
        evaluate(FOUND, [wrong])
