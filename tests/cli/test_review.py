"""``constrain review``: what it writes and says."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from review_corpus import line_of, text_line, write_lines

from constrain.cli import cli


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, ["review", *args])


def test_a_page_is_written_beside_the_records(tmp_path: Path) -> None:
    records = write_lines(tmp_path / "records.jsonl", [text_line(tmp_path / "a.txt", "Hello {/name=Ada}")])
    result = run(str(records))
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"{tmp_path / 'records.html'}: 1 document, 0 failures, 0.")
    assert (tmp_path / "records.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert result.stderr == ""


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    changed = text_line(tmp_path / "a.txt", "Hello {/name=Ada}")
    (tmp_path / "a.txt").write_text("Bye")
    error = {"type": "DocumentError", "message": "no"}
    lines = [changed, line_of(str(tmp_path / "b.txt"), None, error=error)]
    result = run(str(write_lines(tmp_path / "r.jsonl", lines)), "-o", str(tmp_path / "page.html"))
    assert result.stdout.startswith(f"{tmp_path / 'page.html'}: 2 documents, 1 failure, ")
    assert "1 document without text" in result.stderr
    assert "1 document without highlights" in result.stderr


def test_the_records_are_not_replaced_by_their_page(tmp_path: Path) -> None:
    records = write_lines(tmp_path / "records.jsonl", [text_line(tmp_path / "a.txt", "Hello {/name=Ada}")])
    before = records.read_bytes()
    result = run(str(records), "-o", str(tmp_path / "." / "records.jsonl"))
    assert result.exit_code == 2 and "records.jsonl would be replaced, but is read" in result.stderr
    assert records.read_bytes() == before


@pytest.mark.parametrize(("source", "name"), [("page.html", "page.html"), ("rows.csv#1", "rows.csv")])
def test_a_source_is_not_replaced_by_the_page(tmp_path: Path, source: str, name: str) -> None:
    (tmp_path / name).write_text("name\nAda\n")
    records = write_lines(tmp_path / "page.jsonl", [line_of(str(tmp_path / source), "Ada", record={"name": "Ada"})])
    result = run(str(records), *([] if name == "page.html" else ["-o", str(tmp_path / name)]))
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{name} would be replaced, but is a source of the records" in result.stderr
    assert (tmp_path / name).read_text() == "name\nAda\n"


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text("Hello\n")
    result = run(str(tmp_path / "r.jsonl"))
    assert result.exit_code == 1
    assert "line 1 of" in result.stderr and "constrain extract" in result.stderr


def test_a_file_without_records_is_told(tmp_path: Path) -> None:
    result = run(str(write_lines(tmp_path / "records.jsonl", [])))
    assert result.exit_code == 0 and "warning: there are no records to review" in result.stderr


def test_sources_are_read_in_the_encoding_of_the_run(tmp_path: Path) -> None:
    line = text_line(tmp_path / "a.txt", "Grün {/name=Zoë}")
    (tmp_path / "a.txt").write_bytes("Grün Zoë".encode("cp437"))
    records = write_lines(tmp_path / "records.jsonl", [line])
    assert run(str(records), "--encoding", "cp437").stderr == ""
    assert "1 document without highlights" in run(str(records), "--encoding", "cp1251").stderr
