"""Tables: a row for each line, in the order of the documents, written from the journal beside them."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from stub_extraction import Result, documents, extract, run

from constrain.documents import Document
from constrain.errors import OutputInUse, RunError
from constrain.runs import open_output


class Read(Result):
    """An extraction of the JSON that the document is."""

    def __post_init__(self) -> None:
        self.json = json.loads(self.document.text)


def parsed(given: Iterator[Document]) -> Any:
    for result in extract(given):
        yield Read(result.index, result.document, result.error)


def table(path: Path, *records: Any, **options: Any) -> None:
    inputs = [Document(json.dumps(record), f"{number}.txt") for number, record in enumerate(records)]
    with open_output(path) as output:
        run(output, inputs, extract=parsed, **options)


def rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path).to_pylist()
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(params=["csv", "parquet"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"out.{request.param}"


def test_leaves_are_columns_by_their_pointer(path: Path) -> None:
    table(path, {"name": "Ada, A.", "home": {"city": "Zürich\n", "a/b": "1"}}, {"name": "Max", "source": "x"})
    first, second = rows(path)
    assert list(first) == ["source", "/name", "/home/city", "/home/a~1b", "/source"]
    assert [first[name] or None for name in first] == ["0.txt", "Ada, A.", "Zürich\n", "1", None]
    assert (second["source"], second["/source"]) == ("1.txt", "x")


def test_rows_have_the_order_of_the_documents(path: Path) -> None:
    table(path, *({"number": number} for number in range(30)))
    assert [int(row["/number"]) for row in rows(path)] == list(range(30))


def test_a_column_is_no_part_of_another_that_its_name_begins(path: Path) -> None:
    table(path, {"a": None, "ab": 1, "abc": {"d": 2}})
    assert list(rows(path)[0]) == ["source", "/a", "/ab", "/abc/d"]


def test_json_is_an_array_of_the_lines(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    table(path, {"name": "Zürich\n", "list": [1, {"a": None}]}, {"name": "Max"})
    lines = [json.loads(line) for line in (tmp_path / "out.json.jsonl").read_text(encoding="utf-8").splitlines()]
    assert json.loads(path.read_text(encoding="utf-8")) == lines
    assert [line["record"]["name"] for line in lines] == ["Zürich\n", "Max"]
    table(path, {"name": "Max"}, settings="fedcba9876543210")
    assert [line["record"] for line in json.loads(path.read_text(encoding="utf-8"))] == [{"name": "Max"}]


@pytest.mark.parametrize("suffix", [".xlsx", ".XML", ".gz"])
def test_other_formats_are_refused(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(RunError, match=rf"out\{suffix}.*\{suffix.lower()}.*\.csv .*\.jsonl"):
        open_output(tmp_path / f"out{suffix}")
    assert not list(tmp_path.iterdir())


def test_values_of_csv(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    table(path, {"list": [1, {"a": "ä"}], "none": None, "flag": True, "number": 1.5, "text": "01"})
    assert rows(path) == [
        {
            "source": "0.txt",
            "/list": '[1, {"a": "ä"}]',
            "/none": "",
            "/flag": "true",
            "/number": "1.5",
            "/text": "01",
        }
    ]


def test_values_of_parquet_have_types(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    records = [
        {"list": [1, 2], "items": [{"a": 1}], "n": 1, "mixed": 1, "big": 1, "empty": [{}], "none": None, "off": 0.5},
        {
            "list": [],
            "items": [{"b": "x"}],
            "n": 1.5,
            "mixed": "one",
            "big": 2**80,
            "empty": [],
            "none": None,
            "off": True,
        },
    ]
    table(path, *records)
    first, second = rows(path)
    assert first["/list"] == [1, 2] and second["/list"] == []
    assert first["/items"] == [{"a": 1, "b": None}] and second["/items"] == [{"a": None, "b": "x"}]
    assert (first["/n"], second["/n"]) == (1.0, 1.5)
    assert (first["/mixed"], second["/mixed"]) == ("1", '"one"')
    assert (first["/off"], second["/off"]) == ("0.5", "true")
    assert second["/big"] == str(2**80)
    assert first["/empty"] == "[{}]" and first["/none"] is None


@pytest.mark.parametrize(
    ("one", "other"),
    [([0.5], [True]), ([0.5, True], [0.5]), ({"a": True}, {"a": 0.5}), ([{"a": 0.5}], [{"b": 1.5, "a": False}])],
)
def test_true_within_lists_and_objects_is_no_fraction(one: Any, other: Any, tmp_path: Path) -> None:
    table(tmp_path / "out.parquet", {"x": [one]}, {"x": [other]})
    assert [json.loads(row["/x"]) for row in rows(tmp_path / "out.parquet")] == [[one], [other]]
    assert all(isinstance(row["/x"], str) for row in rows(tmp_path / "out.parquet"))


def test_types_are_those_of_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("constrain.runs.parquet._BATCH", 2)
    table(tmp_path / "out.parquet", *({"n": number} for number in (1, None, None, None, 2, 2.5)))
    assert [row["/n"] for row in rows(tmp_path / "out.parquet")] == [1.0, None, None, None, 2.0, 2.5]


def test_records_that_are_no_objects_have_a_column(path: Path) -> None:
    table(path, "high", "low")
    assert [row["record"] for row in rows(path)] == ["high", "low"]


def test_an_object_that_is_sometimes_null_is_no_column(path: Path) -> None:
    table(path, {"home": None}, {"home": {"city": "Rome"}})
    assert list(rows(path)[0]) == ["source", "/home/city"]


def test_names_that_are_no_text_are_kept(tmp_path: Path) -> None:
    document = Document('{"name": "Ada"}', os.fsdecode(b"a\xff.txt"))
    for name, source in (("out.csv", os.fsdecode(b"a\xff.txt")), ("out.parquet", r"a\udcff.txt")):
        with open_output(tmp_path / name) as output:
            run(output, [document], extract=parsed)
        assert rows(tmp_path / name) == [{"source": source, "/name": "Ada"}]


def test_failures_are_rows(path: Path) -> None:
    table(path, {"name": "fail"}, {"name": "Ada"})
    first, second = rows(path)
    assert list(first) == ["source", "/name", "error"]
    assert first["error"] == "ExtractionError: it says so" and not second["error"]


def test_the_journal_is_continued_and_the_table_replaced(path: Path) -> None:
    table(path, 1, 2)
    table(path, 1, 2, 3)
    assert [str(row["record"]) for row in rows(path)] == ["1", "2", "3"]
    assert len(Path(f"{path}.jsonl").read_bytes().splitlines()) == 3


def test_lines_of_other_settings_are_not_in_the_table(path: Path) -> None:
    table(path, 1, 2, settings="f" * 16)
    table(path, 3)
    assert [str(row["record"]) for row in rows(path)] == ["3"]
    assert len(Path(f"{path}.jsonl").read_bytes().splitlines()) == 3


def test_a_run_that_ends_before_its_first_document_leaves_the_table(path: Path) -> None:
    table(path, 1)
    before = path.read_bytes()
    table(path, 2, stop=lambda: True)
    assert path.read_bytes() == before


def test_a_table_of_others_is_left_alone(path: Path) -> None:
    path.write_bytes(b"precious")
    with pytest.raises(RunError, match=r"is not the output of a run, since out\.\w+\.jsonl is not beside it"):
        open_output(path)
    assert path.read_bytes() == b"precious"


def test_a_table_has_one_writer(path: Path) -> None:
    with open_output(path), pytest.raises(OutputInUse):
        open_output(path)


def test_a_full_disk_leaves_the_old_table(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table(path, 1)
    before = path.read_bytes()

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    with open_output(path) as output, pytest.raises(RunError, match=r"cannot write .*No space left on device"):
        run(output, documents(1), on_line=lambda *_: monkeypatch.setattr("os.fsync", fail))
    assert path.read_bytes() == before
    assert not list(path.parent.glob(".*.new"))


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "constrain.runs.parquet", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RunError, match=r"pip install 'constrain-lm\[documents\]'"):
        open_output(tmp_path / "out.parquet")
