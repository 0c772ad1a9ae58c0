"""Lines of a run, as they are read from its output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from review_corpus import line_of, write_lines

from constrain.errors import RunError
from constrain.runs.read_lines import read_lines

FIRST, SECOND = line_of("a.txt", "a", record={"x": 1}), line_of("b.txt", "b", record={"x": 2})
ERROR = {"type": "ExtractionError", "message": "no"}


def test_an_incomplete_last_line_is_left_out(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "records.jsonl", [FIRST, SECOND])
    path.write_bytes(path.read_bytes()[:-5])
    assert read_lines(path) == [FIRST]


def test_a_last_line_without_its_line_break_is_read(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "records.jsonl", [FIRST, SECOND])
    path.write_bytes(path.read_bytes()[:-1])
    assert read_lines(path) == [FIRST, SECOND]


def test_a_record_replaces_the_failures_of_its_document(tmp_path: Path) -> None:
    failure = line_of("a.txt", "a", error=ERROR)
    assert read_lines(write_lines(tmp_path / "records.jsonl", [failure, SECOND, FIRST])) == [FIRST, SECOND]
    assert read_lines(write_lines(tmp_path / "records.jsonl", [FIRST, failure])) == [FIRST]


def test_lines_without_a_key_are_different_documents(tmp_path: Path) -> None:
    lines = read_lines(write_lines(tmp_path / "records.jsonl", [{"record": 1}, {"record": 2}]))
    assert [line["record"] for line in lines] == [1, 2]
    assert len({line["key"] for line in lines}) == 2


@pytest.mark.parametrize("bad", ["[1]", '{"text": 1}', "{oops}", '{"record": NaN}'])
def test_other_files_are_refused_with_the_line(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(f"{json.dumps(FIRST)}\n{bad}\n")
    with pytest.raises(RunError, match=r"line 2 of .*records.jsonl is n"):
        read_lines(path)


@pytest.mark.parametrize(
    ("members", "where"),
    [
        ({"source": {"name": "a.txt"}}, "/source"),
        ({"spans": {"/a": [3]}}, "/spans/~1a"),
        ({"spans": {"/a": ["3", "4"]}}, "/spans/~1a/0"),
        ({"confidence": {"/a": {"probability": "0.5"}}}, "/confidence/~1a/probability"),
        ({"confidence": {"/a": {"probability": -0.5}}}, "/confidence/~1a/probability"),
        ({"part": {"span": [3]}}, "/part/span"),
        ({"confidence": {"/a": 0.5}}, "/confidence/~1a"),
        ({"confidence": None}, "/confidence"),
    ],
)
def test_members_of_the_wrong_kind_are_refused_with_their_place(
    tmp_path: Path, members: dict[str, Any], where: str
) -> None:
    path = write_lines(tmp_path / "records.jsonl", [{**FIRST, **members}])
    with pytest.raises(RunError, match=f"line 1 of .*records.jsonl is malformed at #{where}"):
        read_lines(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such file"):
        read_lines(tmp_path / "none.jsonl")
