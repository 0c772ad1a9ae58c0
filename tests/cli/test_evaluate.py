"""``constrain evaluate``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from constrain.cli import cli


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Records and gold."""
    found = [
        {
            "key": "k",
            "source": "a",
            "record": {"city": "[b]lyon", "ok": True},
            "confidence": {"/ok": {"probability": 0.75}},
        }
    ]
    gold = [
        {"source": "a", "record": {"city": "[b]Lyon", "ok": True}},
        {"source": "b", "record": {"city": "Oslo", "ok": False}},
    ]
    for name, lines in (("records", found), ("gold", gold)):
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(tmp_path / "records.jsonl"), str(tmp_path / "gold.jsonl")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["evaluate", *arguments], env={"COLUMNS": "120"})


def test_tables(files: tuple[str, str]) -> None:
    records, gold = files
    result = run(records, "--gold", gold)
    assert result.exit_code == 0, result.output
    shown = [" ".join(line.split()) for line in result.output.splitlines()]
    assert shown[0] == "2 documents, 0 entirely right, 1 without a line in the records"
    assert "/city 0 1 0 1 0 0.0% 0.0% 0.0%" in shown
    assert "/ok 1 0 0 1 0 100.0% 50.0% 66.7%" in shown
    assert "all 1 1 0 2 0 50.0% 25.0% 33.3%" in shown
    assert "Probabilities of 1 value: expected calibration error 0.250" in shown
    assert "100.0% 0.750 0.0%" in shown


def test_names_of_fields_are_whole_on_a_narrow_terminal(tmp_path: Path) -> None:
    name = "a_name_that_is_longer_than_others"
    (tmp_path / "gold.jsonl").write_text(json.dumps({"source": "a", "record": {name: "x"}}))
    paths = [str(tmp_path / "gold.jsonl")] * 2
    result = CliRunner().invoke(cli, ["evaluate", paths[0], "--gold", paths[1]], env={"COLUMNS": "80"})
    assert result.output.startswith("1 document, 1 entirely right\n")
    assert name in "".join(line.split(" ")[0] for line in result.output.splitlines())
    assert "100.0%  100.0%  100.0%" in result.output


def test_json_and_case(files: tuple[str, str]) -> None:
    records, gold = files
    written = json.loads(run(records, "--gold", gold, "--ignore-case", "--json").stdout)
    assert written["fields"]["/city"]["right"] == 1
    assert list(written) == ["documents", "total", "fields", "spans", "confusions", "reliability", "differences"]


def test_a_page(files: tuple[str, str], tmp_path: Path) -> None:
    records, gold = files
    assert run(records, "--gold", gold, "--html", str(tmp_path / "page.html")).exit_code == 0
    assert "<title>records.jsonl" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_names_of_files_that_are_no_text(tmp_path: Path) -> None:
    records, gold, page = (tmp_path / name for name in ("records.jsonl", "gold.jsonl", "page.html"))
    source = os.fsdecode(b"a\xff.txt")
    records.write_text(json.dumps({"key": "k", "source": source, "record": {"x": 1}}))
    gold.write_text(json.dumps({"source": source, "record": {"x": 2}}))
    result = run(str(records), "--gold", str(gold), "--json", "--html", str(page))
    assert result.exit_code == 0 and json.loads(result.output)["differences"][0]["source"] == source
    assert r"a\udcff.txt" in page.read_text()


def test_gold_is_not_replaced_by_a_page(files: tuple[str, str]) -> None:
    records, gold = files
    before = Path(gold).read_bytes()
    result = run(records, "--gold", gold, "--html", gold)
    assert result.exit_code == 2 and "gold.jsonl would be replaced, but is read" in result.output
    assert Path(gold).read_bytes() == before


def test_gold_of_other_documents(files: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"source": "z", "record": {}}\n')
    result = run(files[0], "--gold", str(tmp_path / "other.jsonl"))
    assert result.exit_code == 1
    assert "no line of gold has the source, or the key, of a record" in result.output


def test_a_file_without_records_is_told(files: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    result = run(str(tmp_path / "empty.jsonl"), "--gold", files[1])
    assert f"warning: {tmp_path / 'empty.jsonl'} has no records" in result.stderr
