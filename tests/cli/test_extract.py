"""``constrain extract``: a line for each file, whatever happens to the others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from constrain.cli import cli

SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["a", "b"]}, "paid": {"type": "boolean"}},
    "required": ["kind", "paid"],
    "additionalProperties": False,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a schema and two texts that fit the context of the tiny model."""
    (tmp_path / "schema.json").write_text(json.dumps({"title": "record", **SCHEMA}))
    (tmp_path / "one.txt").write_text("yes, please")
    (tmp_path / "two.txt").write_text("no, thanks")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(model: Path, *args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["extract", "--model", str(model), *args], input=stdin)


def rows(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def check(row: dict[str, object], source: str) -> None:
    assert row["source"] == source
    assert isinstance(row["record"], dict)
    assert row["record"]["kind"] in ("a", "b")
    assert isinstance(row["record"]["paid"], bool)


def test_a_line_for_each_file(folder: Path, tiny_dir: Path) -> None:
    result = run(tiny_dir, "--schema", "schema.json", "one.txt", "two.txt")
    assert result.exit_code == 0, result.output
    first, second = rows(result.stdout)
    check(first, "one.txt")
    check(second, "two.txt")


def test_records_are_appended_to_a_file(folder: Path, tiny_dir: Path) -> None:
    (folder / "out.jsonl").write_text('{"old": 1}\n')
    result = run(tiny_dir, "--schema", "schema.json", "one.txt", "-o", "out.jsonl")
    assert (result.exit_code, result.stdout) == (0, "")
    old, new = rows((folder / "out.jsonl").read_text())
    assert old == {"old": 1}
    check(new, "one.txt")


def test_files_that_fail_are_reported_and_the_others_go_on(folder: Path, tiny_dir: Path) -> None:
    (folder / "binary.txt").write_bytes(b"\xff\xfe\x00")
    (folder / "long.txt").write_text("word " * 500)
    result = run(
        tiny_dir, "--schema", "schema.json", "binary.txt", "long.txt", "missing.txt", "two.txt", "-o", "out.jsonl"
    )
    assert result.exit_code == 1
    (row,) = rows((folder / "out.jsonl").read_text())
    check(row, "two.txt")
    assert "binary.txt: 'utf-8' codec can't decode" in result.stderr
    assert "long.txt: the prompt has" in result.stderr
    assert "missing.txt: No such file" in result.stderr
    assert "3 of 4 files failed" in result.stderr


def test_records_that_are_not_complete_are_reported(folder: Path, tiny_dir: Path) -> None:
    result = run(tiny_dir, "--schema", "schema.json", "one.txt", "--max-new-tokens", "2")
    assert result.exit_code == 1
    assert "one.txt: a budget of 2 tokens does not suffice" in result.stderr


def test_many_files_keep_their_order(folder: Path, tiny_dir: Path) -> None:
    for number in range(20):
        (folder / f"{number}.txt").write_text("yes " * (number % 7 + 1))
    names = [f"{number}.txt" for number in range(20)]
    outputs = [run(tiny_dir, "--schema", "schema.json", *names, *jobs) for jobs in ((), ("--jobs", "1"))]
    assert [row["source"] for row in rows(outputs[0].stdout)] == names
    assert outputs[0].stdout == outputs[1].stdout
    assert [result.exit_code for result in outputs] == [0, 0]


def test_standard_input(folder: Path, tiny_dir: Path) -> None:
    result = run(tiny_dir, "--schema", "schema.json", "-", stdin="yes")
    check(rows(result.stdout)[0], "-")


def test_a_type_of_a_module_in_the_working_directory(folder: Path, tiny_dir: Path) -> None:
    (folder / "my_types_of_test_extract.py").write_text("from typing import Literal\nKind = Literal['a', 'b']\n")
    result = run(tiny_dir, "--schema", "my_types_of_test_extract:Kind", "one.txt")
    assert result.exit_code == 0, result.output
    assert rows(result.stdout)[0]["record"] in ("a", "b")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("nowhere.json", "there is no file 'nowhere.json'"),
        ('{"type": "string"}', "there is no file '{"),
        ("nowhere:Type", "'nowhere:Type' cannot be imported"),
        ("json:Nothing", "'json:Nothing' cannot be imported"),
        ("broken.json", "broken.json is not JSON"),
        ("wrong.json", "#/type (type): not a valid JSON Schema"),
    ],
)
def test_schemas_that_cannot_be_used(folder: Path, tiny_dir: Path, schema: str, message: str) -> None:
    (folder / "broken.json").write_text("{")
    (folder / "wrong.json").write_text('{"type": "strin"}')
    result = run(tiny_dir, "--schema", schema, "one.txt")
    assert result.exit_code in (1, 2)
    assert message in result.stderr


def test_a_model_that_cannot_be_used(folder: Path) -> None:
    result = run(folder, "--schema", "schema.json", "one.txt")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert str(folder) in result.stderr


def test_as_a_process(folder: Path, tiny_dir: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "constrain",
        "extract",
        "--schema",
        "schema.json",
        "one.txt",
        "--model",
        str(tiny_dir),
    ]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    check(rows(process.stdout)[0], "one.txt")
