"""Merging: the records of a document's chunks become the record that the whole document has."""

from __future__ import annotations

import re
from typing import Any

import pytest
from gold import FILLER, Gold, Partial
from hypothesis import given, settings
from hypothesis import strategies as st

from constrain.documents import Document, part_of
from constrain.engine.pointers import pointer
from constrain.extract import Confidence, Extraction, Span
from constrain.extract.annotated import Node, annotated
from constrain.extract.chunks import chunks
from constrain.extract.merge import merge

NAMES = ["apples", "red apples", "Äpfel aus Köln", "μήλα", "苹果", "plum"]


def words(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


@st.composite
def golds(draw: st.DrawFn, distinct: bool, sentences: bool) -> Gold:
    """Texts with rows and other text between them.

    Args:
        draw: draws from strategies.
        distinct: whether all rows differ.
        sentences: whether a row may be of several sentences or lines, so that chunks may cut it.
    """
    gold = Gold()
    for number in range(draw(st.integers(1, 30))):
        gold.text += "".join(draw(st.lists(st.sampled_from(FILLER), max_size=3)))
        name = f"{draw(st.sampled_from(NAMES))}{f' {number}' if distinct else ''}"
        between = draw(st.sampled_from([", ", ". Amount: ", "\n", " "] if sentences else [", ", " "]))
        amount, end = ("amount", draw(st.integers(1, 3))), draw(st.sampled_from([". ", ".\n", "\n\n"]))
        gold.add_item("Sold ", ("name", name), between, amount, " boxes", end)
    return gold


def merged(gold: Gold, limit: int, overlap: int, partial: Partial, quoted: bool) -> Node:
    found = chunks(gold.document, limit, overlap, words)
    records = [
        annotated(gold.found_in(chunk, partial, quoted), number, chunk.start) for number, chunk in enumerate(found)
    ]
    return merge(records, found)


limits, shares = st.integers(32, 200), st.floats(0.4, 0.5)
partials = st.sampled_from(["left out", "values", "cut"])


@settings(max_examples=50, deadline=None, derandomize=True)
@given(golds(distinct=False, sentences=True), limits, shares, partials)
def test_quoted_items_are_found_completely_and_once(gold: Gold, limit: int, share: float, partial: Partial) -> None:
    record = merged(gold, limit, int(share * limit), partial, quoted=True)
    assert record.json == {"items": gold.records}
    assert {pointer(path): node.span for path, node in record.walk() if node.span} == gold.spans


@settings(max_examples=50, deadline=None, derandomize=True)
@given(golds(distinct=False, sentences=False) | golds(distinct=True, sentences=True), limits, shares, partials)
def test_unquoted_items_are_found_completely_and_once(gold: Gold, limit: int, share: float, partial: Partial) -> None:
    assert merged(gold, limit, int(share * limit), partial, quoted=False).json == {"items": gold.records}


# Single values and nested ones

TEXT = "0123456789" * 10


def records_of(*found: Any, overlap: int = 10, **known: list[dict[str, Any]]) -> Node:
    """Merge records of chunks of 30 characters; ``known`` has spans and confidence of each chunk."""
    document, step = Document(TEXT), 30 - overlap
    parts = [part_of(document, step * number, step * number + 30) for number in range(len(found))]
    extractions = [
        Extraction(record, record, "", [], "stop", **{name: values[number] for name, values in known.items()})
        for number, record in enumerate(found)
    ]
    return merge([annotated(extraction, number) for number, extraction in enumerate(extractions)], parts)


def conflicts(node: Node) -> dict[str, list[Any]]:
    return {pointer(path): list(below.conflicts) for path, below in node.walk() if below.conflicts}


def test_a_single_value_is_the_first_that_is_not_null_and_others_are_conflicts() -> None:
    node = records_of({"a": None, "b": 1}, {"a": "x", "b": 1}, {"a": "y", "b": None}, {"a": "y", "b": True, "c": None})
    assert node.json == {"a": "x", "b": 1, "c": None}
    assert conflicts(node) == {"/a": ["y"], "/b": [True]}


def test_a_single_value_is_the_surest_if_that_is_known() -> None:
    sure = [{"/a": Confidence(probability)} for probability in (0.6, 0.9, 0.7)]
    node = records_of({"a": "x"}, {"a": "y"}, {"a": "x"}, confidence=sure)
    assert node.json == {"a": "y"} and conflicts(node) == {"/a": ["x"]}
    assert node.value["a"].confidence == Confidence(0.9)


def test_null_is_as_sure_as_its_least_sure_chunk() -> None:
    sure = [{"": Confidence(probability)} for probability in (0.9, 0.4, 0.8)]
    assert records_of(None, None, None, confidence=sure).confidence == Confidence(0.4)


def test_objects_are_merged_member_by_member() -> None:
    node = records_of({"a": {"b": None, "c": 1}}, {"a": {"b": [2], "d": 3}}, {"a": None})
    assert node.json == {"a": {"b": [2], "c": 1, "d": 3}} and not conflicts(node)


def test_a_single_record_stays_as_it_is() -> None:
    record = {"a": [1, [2, {"b": None}]], "c": "x"}
    assert records_of(record).json == record


def test_equal_items_at_different_places_stay_two() -> None:
    spans = [{"/0": Span(start, start + 1)} for start in (0, 45)]
    assert records_of(["0"], ["0"], spans=spans).json == ["0", "0"]
    spans = [{"/0": Span(25, 26)}] * 2
    assert records_of(["5"], ["5"], spans=spans).json == ["5"]


def test_items_below_one_heading_stay_apart() -> None:
    """All of them quote the heading, which says nothing about which item is which."""
    heading = Span(21, 22)
    before = {"/0/of": heading, "/0/name": Span(23, 24)}
    after = {"/0/of": heading, "/0/name": Span(40, 41), "/1/of": heading, "/1/name": Span(42, 43)}
    first, second, third = ({"of": "1", "name": name} for name in "302")
    assert records_of([first], [second, third], spans=[before, after]).json == [first, second, third]


def test_a_list_inside_of_an_item_goes_on_in_the_next_chunk() -> None:
    before = {"/0/title": Span(0, 1), "/0/rows/0": Span(10, 11), "/0/rows/1": Span(25, 26)}
    after = {"/0/rows/0": Span(25, 26), "/0/rows/1": Span(35, 36), "/1/title": Span(40, 41), "/1/rows/0": Span(41, 42)}
    node = records_of(
        [{"title": "0", "rows": ["0", "5"]}],
        [{"title": None, "rows": ["5", "5"]}, {"title": "0", "rows": ["1"]}],
        spans=[before, after],
    )
    assert node.json == [{"title": "0", "rows": ["0", "5", "5"]}, {"title": "0", "rows": ["1"]}]
    assert {pointer(path): below.span for path, below in node.walk() if below.span} == {
        "/0/title": Span(0, 1),
        "/0/rows/0": Span(10, 11),
        "/0/rows/1": Span(25, 26),
        "/0/rows/2": Span(35, 36),
        "/1/title": Span(40, 41),
        "/1/rows/0": Span(41, 42),
    }


def test_lists_of_lists_are_joined() -> None:
    spans = [{"/0/0": Span(5, 6), "/1/0": Span(22, 23)}, {"/0/0": Span(22, 23), "/0/1": Span(31, 32)}]
    assert records_of([["5"], ["2"]], [["2", "1"]], spans=spans).json == [["5"], ["2", "1"]]


def test_the_whole_of_an_item_replaces_the_part_of_it_that_another_chunk_has() -> None:
    part, whole = {"name": "78", "amount": None}, {"name": "7890", "amount": 4}
    spans = [{"/0/name": Span(27, 29)}, {"/0/name": Span(27, 31), "/0/amount": Span(33, 34)}]
    node = records_of([part], [whole], spans=spans)
    assert node.json == [whole] and not conflicts(node)


def test_two_chunks_that_read_an_item_differently_are_a_conflict() -> None:
    spans = [{"/0/name": Span(5, 6), "/1/name": Span(22, 23)}, {"/0/name": Span(22, 23), "/1/name": Span(40, 41)}]
    before = [{"name": "5", "kind": "a"}, {"name": "2", "kind": "a"}]
    after = [{"name": "2", "kind": "b"}, {"name": "0", "kind": "a"}]
    node = records_of(before, after, spans=spans)
    assert node.json == [*before, after[1]] and conflicts(node) == {"/1/kind": ["b"]}


def test_what_one_of_two_chunks_overlooked_comes_in_order() -> None:
    spans = [{"/0": Span(21, 22), "/1": Span(25, 26)}, {"/0": Span(23, 24), "/1": Span(27, 28)}]
    assert records_of(["1", "5"], ["3", "7"], spans=spans).json == ["1", "3", "5", "7"]


def test_items_that_are_not_said_word_for_word_are_compared_near_the_overlap() -> None:
    assert records_of(["a", "b", "c"], ["c", "d"]).json == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([{"n": "x", "in": ["a", "b"]}], [{"n": "x", "in": ["b", "c"]}], [{"n": "x", "in": ["a", "b", "c"]}]),
        ([{"n": "x", "in": ["a"]}], [{"n": "y", "in": ["a"]}], [{"n": "x", "in": ["a"]}, {"n": "y", "in": ["a"]}]),
        ([{"in": ["a"]}, {"in": ["b"]}], [{"in": ["b"]}, {"in": ["c"]}], [{"in": ["a"]}, {"in": ["b"]}, {"in": ["c"]}]),
        ([["a"], ["b", "c"]], [["b", "c"], ["d"]], [["a"], ["b", "c"], ["d"]]),
        ([{"of": {"b": 1, "c": None}}], [{"of": {"b": 1, "c": 2}}], [{"of": {"b": 1, "c": 2}}]),
        ([{"of": {"b": 1}}], [{"of": {"b": 2}}], [{"of": {"b": 1}}, {"of": {"b": 2}}]),
        ([{"n": 1}], [{"n": True}], [{"n": 1}, {"n": True}]),
        ([{"n": None}], [{"n": "x"}], [{"n": None}, {"n": "x"}]),
    ],
)
def test_items_without_quotes_are_the_same_if_all_that_both_have_agrees(before: Any, after: Any, expected: Any) -> None:
    """Their lists do not differ: each chunk may have items that the other has not."""
    node = records_of(before, after)
    assert node.json == expected and not conflicts(node)
