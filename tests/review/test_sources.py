"""Texts of records, read again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from review_corpus import line_of

from constrain.documents import inputs, parts, read
from constrain.review.sources import Found, Sources
from constrain.runs import Line

ROWS = [{"id": "7", "note": "x" * 50, "text": "Ada"}, {"id": "1", "note": "", "text": "Grace 😀"}]


def find(line: Line, *others: Line) -> Found:
    return Sources([line, *others]).find(line)


def test_a_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Ada 😀")
    found = find(line_of(str(path), "Ada 😀", record={}))
    assert found.document == read(path)
    assert found.is_unchanged


def test_a_changed_file_is_found_but_not_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Grace")
    found = find(line_of(str(path), "Ada", record={}))
    assert found.document is not None and found.document.text == "Grace"
    assert not found.is_unchanged and "changed" in found.note


@pytest.mark.parametrize("source", [None, "-"])
def test_texts_without_a_file_are_not_there(source: str | None) -> None:
    found = find(line_of(source or "", "Ada", record={}) | {"source": source})
    assert found.document is None and "standard input" in found.note


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    found = find(line_of(str(tmp_path / "none.txt"), "Ada", record={}))
    assert found.document is None and "none.txt: no such file" in found.note


@pytest.mark.parametrize("source", ["a\0b", "x" * 5000, "x" * 5000 + ".csv#1", "\ud800", "https://example.com/#1"])
def test_names_that_no_file_can_have(source: str, tmp_path: Path) -> None:
    line = line_of("", "Ada", record={}) | {"source": source}
    assert find(line).document is None
    assert not Sources([line]).has(tmp_path)


def test_parts_are_parts_again(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Ada.\n\nGrace.\nAlan.\n")
    divided = list(parts(read(path), "paragraph"))
    lines = [
        line_of(str(path), part.text, {"paragraph": part.number, "span": [part.start, part.end]}, record={})
        for part in divided
    ]
    sources = Sources(lines)
    found = [sources.find(line) for line in lines]
    assert [each.document.text for each in found if each.document] == ["Ada.", "Grace.\nAlan.\n"]
    assert all(each.is_unchanged for each in found)


def write_csv(path: Path) -> None:
    cells = [";".join(ROWS[0]), *(";".join(row.values()) for row in ROWS)]
    path.write_text("\n".join(cells) + "\n", encoding="utf-8")


def write_json(path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))


def write_parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), path)


@pytest.mark.parametrize(
    ("name", "write"), [("t.csv", write_csv), ("t.jsonl", write_json), ("t.parquet", write_parquet)]
)
@pytest.mark.parametrize("ids", [None, "id"])
def test_rows_of_tables_are_found_by_number_and_by_name(
    tmp_path: Path, name: str, write: Callable[[Path], Any], ids: str | None
) -> None:
    write(tmp_path / name)
    documents = [source.read() for source in inputs([str(tmp_path / name)], column="text", ids=ids)]
    lines = [line_of(document.source or "", document.text, record={}) for document in documents]
    sources = Sources(lines)
    found = [sources.find(line) for line in lines]
    assert [each.document.text for each in found if each.document] == ["Ada", "Grace 😀"]
    assert all(each.is_unchanged for each in found)


def test_a_row_that_is_gone_is_said(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv")
    found = find(line_of(str(tmp_path / "t.csv#9"), "Ada", record={}))
    assert found.document is None and "no such row" in found.note


def test_a_file_whose_name_looks_like_a_row(tmp_path: Path) -> None:
    (tmp_path / "t.csv#1").write_text("Ada")
    assert find(line_of(str(tmp_path / "t.csv#1"), "Ada", record={})).is_unchanged


def test_lines_of_other_programs_are_taken_if_their_spans_fit(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Ada")
    line = {"key": "1", "source": str(path), "record": {}}
    assert find({**line, "spans": {"/x": [0, 3]}}).is_unchanged
    assert not find({**line, "spans": {"/x": [0, 4]}}).is_unchanged
