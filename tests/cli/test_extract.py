"""``constrain extract``: a line for each document, whatever happens to the others or to the run."""

from __future__ import annotations

import csv
import gc
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from file_sizes import largest_file
from fpdf import FPDF
from PIL import Image

from constrain.cli import cli
from constrain.cli.counted import counted
from constrain.cli.interrupt import Interrupt
from constrain.cli.run_report import RunReport
from constrain.extract import Calibration
from constrain.extract.curves import Logistic
from constrain.runs import Journal, Line, Progress

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


@pytest.fixture
def without_weights(tiny_dir: Path, tmp_path: Path) -> Path:
    """A model that cannot be loaded, though its schemas and prompts can be known."""
    folder = tmp_path / "without weights"
    shutil.copytree(tiny_dir, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    return folder


def run(model: Path, *args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["extract", "--model", str(model), *args], input=stdin)


def rows(text: str) -> list[dict[str, Any]]:
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


def test_garbage_collections_leave_out_the_model(folder: Path, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every full collection would stall the batch for as long as it takes to go through the model and torch."""
    counts, freeze = [], gc.freeze

    def watched() -> None:
        freeze()
        counts.append(gc.get_freeze_count())

    monkeypatch.setattr(gc, "freeze", watched)
    assert run(tiny_dir, "--schema", "schema.json", "one.txt").exit_code == 0
    assert len(counts) == 1 and counts[0] > 10_000
    assert gc.get_freeze_count() == 0, "what there is after the command is collected again"


def test_confidence_is_written_where_it_is_asked_for(folder: Path, tiny_dir: Path) -> None:
    found = {}
    for confidence in ("yes", "no", "exact"):
        result = run(tiny_dir, "--schema", "schema.json", "one.txt", "--confidence", confidence)
        assert result.exit_code == 0, result.output
        (found[confidence],) = rows(result.stdout)
    assert len({row["key"] for row in found.values()}) == 3
    assert "confidence" not in found["no"] and found["yes"]["record"] == found["no"]["record"]
    assert found["yes"]["confidence"].keys() == {"/kind", "/paid"}
    for name, confidence in found["exact"]["confidence"].items():
        assert abs(sum(confidence["alternatives"].values()) - 1) < 1e-6
        assert confidence["probability"] == confidence["alternatives"][json.dumps(found["exact"]["record"][name[1:]])]


def test_calibrated_confidence(folder: Path, tiny_dir: Path) -> None:
    Calibration({"others": Logistic(0.0, math.log(4))}).save(folder / "calibration.json")
    plain, result = (
        run(tiny_dir, "--schema", "schema.json", "one.txt", *options)
        for options in ((), ("--calibration", "calibration.json"))
    )
    (row,) = rows(result.stdout)
    assert [each["probability"] for each in row["confidence"].values()] == [0.8, 0.8]
    assert row["key"] != rows(plain.stdout)[0]["key"], "a run with another calibration does not count as done"
    (folder / "calibration.json").write_text("{}")
    result = run(tiny_dir, "--schema", "schema.json", "one.txt", "--calibration", "calibration.json")
    assert result.exit_code == 1 and "calibration.json is no calibration" in result.output


def test_records_are_appended_to_a_file(folder: Path, tiny_dir: Path) -> None:
    line = {"source": "old.txt", "record": 1}
    (folder / "out.jsonl").write_text(json.dumps(line) + "\n")
    result = run(tiny_dir, "--schema", "schema.json", "one.txt", "-o", "out.jsonl")
    assert (result.exit_code, result.stdout) == (0, "")
    old, new = rows((folder / "out.jsonl").read_text())
    assert old == line
    check(new, "one.txt")


def test_files_that_fail_are_reported_and_the_others_go_on(folder: Path, tiny_dir: Path) -> None:
    (folder / "binary.txt").write_bytes(b"\x7fELF\0\1\0")
    (folder / "blank.txt").write_text(" " * 500)
    result = run(
        tiny_dir, "--schema", "schema.json", "binary.txt", "blank.txt", "missing.txt", "two.txt", "-o", "out.jsonl"
    )
    assert result.exit_code == 1
    *failures, row = rows((folder / "out.jsonl").read_text())
    check(row, "two.txt")
    kinds = ["DocumentError", "ExtractionError", "DocumentError"]
    assert [failure["error"]["type"] for failure in failures] == kinds  # type: ignore[index]
    assert "binary.txt: it is not a text" in result.stderr
    assert "blank.txt: the document is empty" in result.stderr
    assert "missing.txt: no such file" in result.stderr
    assert "3 of 4 documents failed" in result.stderr


def test_records_that_are_not_complete_are_reported(folder: Path, tiny_dir: Path) -> None:
    result = run(tiny_dir, "--schema", "schema.json", "one.txt", "--max-new-tokens", "2")
    assert result.exit_code == 1
    assert "one.txt: a budget of 2 tokens is too small" in result.stderr


def test_many_files_keep_their_order(folder: Path, tiny_dir: Path) -> None:
    for number in range(20):
        (folder / f"{number}.txt").write_text("yes " * (number % 7 + 1))
    names = [f"{number}.txt" for number in range(20)]
    outputs = [run(tiny_dir, "--schema", "schema.json", *names, *jobs) for jobs in ((), ("--jobs", "1"))]
    assert [row["source"] for row in rows(outputs[0].stdout)] == names
    many, one = ([{**row, "usage": None, "confidence": None} for row in rows(output.stdout)] for output in outputs)
    assert many == one  # but for the tokens that were cached, and the last digits of probabilities
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
        (f'{{"title": "{"t" * 5000}"}}', "there is no file '{"),
        ("nowhere:Type", "'nowhere:Type' cannot be imported"),
        ("json:Nothing", "'json:Nothing' cannot be imported"),
        ("broken.json", "broken.json is not JSON"),
        ("list.json", "list.json is not a JSON Schema: that is an object, not a list"),
        ("wrong.json", "# (type): not a valid JSON Schema: 'strin' is none of the types string, number, "),
        (
            "types.py",
            "types.py is not JSON: Expecting value: line 1 column 1 (char 0); a type in it is given as types:",
        ),
        ("types.py:Kind", "'types.py' is a file; its module is types:Kind"),
        ("no_python:Kind", "'no_python:Kind' cannot be imported: SyntaxError: "),
        ("raises:Kind", "'raises:Kind' cannot be imported: ZeroDivisionError: division by zero ("),
    ],
)
def test_schemas_that_cannot_be_used(folder: Path, tiny_dir: Path, schema: str, message: str) -> None:
    (folder / "broken.json").write_text("{")
    (folder / "list.json").write_text("[1]")
    (folder / "wrong.json").write_text('{"type": "strin"}')
    (folder / "types.py").write_text("Kind = int")
    (folder / "no_python.py").write_text("def :")
    (folder / "raises.py").write_text("\n1 / 0")
    result = run(tiny_dir, "--schema", schema, "one.txt")
    assert result.exit_code in (1, 2)
    assert message in result.stderr


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_schemas_as_other_systems_write_them(folder: Path, tiny_dir: Path, encoding: str) -> None:
    (folder / "other.json").write_text(json.dumps(SCHEMA), encoding=encoding)
    check(rows(run(tiny_dir, "--schema", "other.json", "one.txt").stdout)[0], "one.txt")


def test_closed_streams_are_named(
    folder: Path, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["extract", "--model", str(tiny_dir), "--schema", "schema.json", "-"]
    monkeypatch.setattr("sys.stdin", None)
    assert cli.main([*args, "-o", "out.jsonl"], standalone_mode=False) == 1
    assert "-: standard input is closed" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(click.UsageError, match="standard output is closed"):
        cli.main(args, standalone_mode=False)


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        ([""], 1, "'': an empty name is no document"),
        (["one.txt", "-o", ""], 2, "names no file"),
        (["one.txt", "-o", f"{'o' * 300}.jsonl"], 1, "too long"),
        (["one.txt", "-o", f"{'o' * 300}.csv"], 1, "too long"),
        (["a text rather than a file " * 200], 1, "too long"),
    ],
)
def test_names_that_cannot_be_those_of_files(
    folder: Path, tiny_dir: Path, args: list[str], code: int, message: str
) -> None:
    result = run(tiny_dir, "--schema", "schema.json", *args)
    assert (result.exit_code, type(result.exception)) == (code, SystemExit)
    assert message in result.stderr.lower()


def test_an_option_that_cannot_be_is_one_error_and_no_line(folder: Path, without_weights: Path) -> None:
    result = run(without_weights, "--schema", "schema.json", "one.txt", "-o", "out.jsonl", "--temperature", "nan")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: temperature must be a finite number")
    assert (folder / "out.jsonl").read_text() == ""


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


# Runs that go on


MANY = tuple(f"{number}.txt" for number in range(12))


@pytest.fixture
def many(folder: Path) -> Path:
    """The working directory with a dozen texts more."""
    for number, name in enumerate(MANY):
        (folder / name).write_text("yes " * (number % 5 + 1))
    return folder


def sources(path: Path) -> list[object]:
    return [row["source"] for row in rows(path.read_text())]


def test_a_second_run_does_what_is_missing(many: Path, tiny_dir: Path) -> None:
    args = ("--schema", "schema.json", "-o", "out.jsonl")
    assert run(tiny_dir, *args, *MANY[:5]).exit_code == 0
    first = (many / "out.jsonl").read_text()
    result = run(tiny_dir, *args, *MANY)
    assert result.exit_code == 0
    assert "7 records of 12 documents in" in result.stderr and "; 5 there before" in result.stderr
    assert sources(many / "out.jsonl") == list(MANY)
    assert (many / "out.jsonl").read_text().startswith(first)
    assert "0 records of 12 documents in" in run(tiny_dir, *args, *MANY, "--max-new-tokens", "500").stderr
    other = run(tiny_dir, *args, *MANY, "--temperature", "1", "--seed", "1").stderr
    assert "12 records of 12 documents in" in other
    assert "out.jsonl has 12 lines of another schema, model or setting, too" in other
    assert "another schema" not in result.stderr


def test_a_run_with_nothing_to_do_loads_no_model(many: Path, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = ("--schema", "schema.json", "-o", "out.jsonl", *MANY)
    assert run(tiny_dir, *args).exit_code == 0
    before = (many / "out.jsonl").read_text()
    monkeypatch.setattr("constrain.llm.load", lambda *_, **__: pytest.fail("the model is loaded"))
    assert run(tiny_dir, *args).exit_code == 0
    assert (many / "out.jsonl").read_text() == before


@pytest.mark.parametrize("output", ["letters/out.jsonl", "letters/out.csv"])
def test_a_later_run_does_not_read_the_output_of_an_earlier_one(folder: Path, tiny_dir: Path, output: str) -> None:
    (folder / "letters").mkdir()
    (folder / "letters" / "more.csv").write_text("text\nyes\nno\n")
    args = ("--schema", "schema.json", "--column", "text", "-o", output)
    assert run(tiny_dir, *args, "letters").exit_code == 0
    journal = folder / (output if output.endswith(".jsonl") else f"{output}.jsonl")
    assert CliRunner().invoke(cli, ["review", str(journal)]).exit_code == 0
    for paths in (
        ["letters"],
        ["letters/*"],
        sorted(f"letters/{path.name}" for path in (folder / "letters").glob("[!.]*")),
    ):
        result = run(tiny_dir, *args, *paths)
        assert (result.exit_code, "0 records of 2 documents in" in result.stderr) == (0, True), result.stderr


def test_the_tokens_are_told(folder: Path, tiny_dir: Path) -> None:
    stderr = run(tiny_dir, "--schema", "schema.json", "one.txt").stderr
    (usage,) = [row["usage"] for row in rows(run(tiny_dir, "--schema", "schema.json", "one.txt").stdout)]
    assert isinstance(usage, dict)
    assert f"tokens: {usage['prompt_tokens']:,} of prompts" in stderr
    assert f", {usage['output_tokens']:,} of records, " in stderr


def test_failures_are_tried_again_when_asked_for(folder: Path, tiny_dir: Path) -> None:
    args = ("--schema", "schema.json", "one.txt", "two.txt", "-o", "out.jsonl")
    assert run(tiny_dir, *args, "--max-new-tokens", "2").exit_code == 1
    again = run(tiny_dir, *args)
    assert again.exit_code == 1
    assert "2 of 2 documents failed; --retry-failed tries 2 of them again" in again.stderr
    assert run(tiny_dir, *args, "--retry-failed").exit_code == 0
    assert ["record" in row for row in rows((folder / "out.jsonl").read_text())] == [True, True]


def test_an_empty_document_is_a_failure_at_once(folder: Path, without_weights: Path) -> None:
    (folder / "empty.txt").write_text(" \n")
    result = run(without_weights, "--schema", "schema.json", "empty.txt")
    assert result.exit_code == 1
    assert "\n1 of 1 document failed\n" in result.stderr
    assert rows(result.stdout)[0]["error"] == {"type": "ExtractionError", "message": "the document is empty"}


def test_the_record_is_what_the_type_makes_of_it(folder: Path, tiny_dir: Path) -> None:
    (folder / "shouted_of_test_extract.py").write_text(
        "from typing import Annotated, Literal\n"
        "from pydantic import AfterValidator, BaseModel\n"
        "class Shouted(BaseModel):\n"
        "    kind: Annotated[Literal['a', 'b'], AfterValidator(str.upper)]\n"
        "    note: str = 'none'\n"
    )
    result = run(tiny_dir, "--schema", "shouted_of_test_extract:Shouted", "one.txt", "--max-new-tokens", "200")
    (row,) = rows(result.stdout)
    assert isinstance(row["record"], dict) and row["record"]["kind"] in ("A", "B") and "note" in row["record"]


def test_what_the_type_refuses_is_said_in_one_line(folder: Path, tiny_dir: Path) -> None:
    (folder / "strict_of_test_extract.py").write_text(
        "from typing import Annotated, Literal\n"
        "from pydantic import AfterValidator, BaseModel\n"
        "def refuse(kind):\n"
        "    raise ValueError('all kinds are wrong')\n"
        "class Strict(BaseModel):\n"
        "    kind: Annotated[Literal['a', 'b'], AfterValidator(refuse)]\n"
    )
    result = run(tiny_dir, "--schema", "strict_of_test_extract:Strict", "one.txt")
    (row,) = rows(result.stdout)
    message = "the record is refused by its type at #/kind: Value error, all kinds are wrong"
    assert row["error"] == {"type": "ExtractionError", "message": message}


def test_a_first_look(many: Path, tiny_dir: Path) -> None:
    args = (tiny_dir, "--schema", "schema.json", *MANY)
    assert [row["source"] for row in rows(run(*args, "--limit", "3").stdout)] == list(MANY[:3])
    some = [row["source"] for row in rows(run(*args, "--sample", "3").stdout)]
    assert some == sorted(some, key=list(MANY).index) and len(set(some)) == 3
    assert run(*args, "--sample", "3", "--limit", "3").exit_code == 2


def test_a_folder(many: Path, tiny_dir: Path) -> None:
    (many / "letters").mkdir()
    (many / "letters" / "one.txt").write_text("yes")
    result = run(tiny_dir, "--schema", "schema.json", "letters")
    assert rows(result.stdout)[0]["source"] == "letters/one.txt"
    assert "left out" not in result.stderr
    for name in ("a.XLSX", "b.xlsx", "more.csv", "README", ".hidden.png"):
        (many / "letters" / name).write_text("text\nno\n")
    result = run(tiny_dir, "--schema", "schema.json", "letters", "-o", "letters/out.json")
    assert "4 files of folders left out for the suffix: 2 .xlsx, " in result.stderr
    assert "1 .csv" in result.stderr and "1 without suffix" in result.stderr
    again = run(tiny_dir, "--schema", "schema.json", "--column", "text", "letters", "-o", "letters/out.json")
    assert "3 files of folders left out" in again.stderr


def test_a_record_for_each_paragraph(folder: Path, tiny_dir: Path) -> None:
    (folder / "one.txt").write_text("yes\n\nno")
    result = run(tiny_dir, "--schema", "schema.json", "one.txt", "--each", "paragraph")
    assert "2 records of 2 paragraphs in" in result.stderr
    found = rows(result.stdout)
    assert [row["part"] for row in found] == [{"paragraph": 1, "span": [0, 3]}, {"paragraph": 2, "span": [5, 7]}]


def test_a_table_that_is_read_as_one_document_is_warned_of(folder: Path, tiny_dir: Path) -> None:
    (folder / "letters.csv").write_text("id,text\n1,yes\n")
    result = run(tiny_dir, "--schema", "schema.json", "letters.csv", "one.txt")
    assert result.stderr.count("warning") == 1
    assert "warning: letters.csv is one document; with --column NAME, each of its rows is one" in result.stderr
    assert "warning" not in run(tiny_dir, "--schema", "schema.json", "letters.csv", "--column", "text").stderr


def test_scanned_pages_are_warned_of(folder: Path, tiny_dir: Path) -> None:
    pdf = FPDF()
    pdf.set_font("helvetica")
    for number in range(3):
        pdf.add_page()
        if number == 1:
            pdf.cell(text="Dear Ada")
        else:
            pdf.image(Image.new("RGB", (8, 8)), 10, 10)
    pdf.output(str(folder / "scan.pdf"))
    result = run(tiny_dir, "--schema", "schema.json", "scan.pdf")
    assert "warning: scan.pdf has 2 pages without text, only images: 1, 3" in result.stderr and result.exit_code == 0


def test_the_rows_of_a_table(folder: Path, tiny_dir: Path) -> None:
    (folder / "letters.csv").write_text("id,text\na,yes\nb,\nc,no\n")
    args = ("--schema", "schema.json", "letters.csv", "--column", "text", "--id-column", "id", "-o", "out.csv")
    assert run(tiny_dir, *args).exit_code == 1  # the second text is empty
    with (folder / "out.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["source"] for row in found] == ["letters.csv#a", "letters.csv#b", "letters.csv#c"]
    assert [row["/kind"] in ("a", "b") for row in found] == [True, False, True]
    assert found[1]["error"] == "ExtractionError: the document is empty"
    assert "letters.csv: the table has no column 'body'" in run(tiny_dir, *args[:3], "--column", "body").stderr
    assert run(tiny_dir, *args[:3], "--id-column", "id").exit_code == 2


def test_a_table_without_rows_is_warned_of(folder: Path, tiny_dir: Path) -> None:
    (folder / "letters.csv").write_text("text\n")
    result = run(tiny_dir, "--schema", "schema.json", "letters.csv", "--column", "text")
    assert (result.exit_code, result.stderr) == (0, "warning: there are no documents\n")


# Schemas


def test_a_schema_that_does_not_compile_is_one_error_and_no_model_is_loaded(many: Path, without_weights: Path) -> None:
    (many / "schema.json").write_text('{"type": "string", "pattern": "(a)\\\\1"}')
    result = run(without_weights, "--schema", "schema.json", *MANY, "-o", "out.jsonl")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: # (pattern): ") and result.stderr.count("\n") == 1
    assert not (many / "out.jsonl").exists()


def test_misspelled_keywords_are_warned_of(folder: Path, tiny_dir: Path) -> None:
    (folder / "schema.json").write_text(json.dumps({**SCHEMA, "additonalProperties": False}))
    result = run(tiny_dir, "--schema", "schema.json", "one.txt")
    assert "warning: # (additonalProperties): unknown keyword; did you mean 'additionalProperties'" in result.stderr


def test_misspelled_keywords_of_quotes_and_evidence_are_where_the_schema_has_them(folder: Path, tiny_dir: Path) -> None:
    quote = {"type": "string", "x-verbatim": {"source": "text"}, "minLength": 90, "maxlength": 99}
    total = {"type": "integer", "x-evidence": True, "maximun": 99}
    schema = {"type": "object", "properties": {"name": quote, "total": total}, "required": ["name"]}
    (folder / "schema.json").write_text(json.dumps(schema))
    result = run(tiny_dir, "--schema", "schema.json", "one.txt")
    assert "warning: #/properties/name (maxlength): unknown keyword; did you mean 'maxLength'?" in result.stderr
    assert "warning: #/properties/total (maximun): unknown keyword; did you mean 'maximum'?" in result.stderr


def test_a_schema_that_allows_everything_is_warned_of(folder: Path, tiny_dir: Path) -> None:
    (folder / "schema.json").write_text('{"name": "string", "age": "number"}')
    result = run(tiny_dir, "--schema", "schema.json", "one.txt", "--max-new-tokens", "5")
    assert "warning: no keyword of the schema has an effect" in result.stderr


# Other writers, and ends


def test_a_second_writer_is_refused_before_a_model_is_loaded(folder: Path, without_weights: Path) -> None:
    with Journal(folder / "out.jsonl"):
        result = run(without_weights, "--schema", "schema.json", "one.txt", "-o", "out.jsonl")
    assert result.exit_code == 1
    assert f"is being written by process {os.getpid()} on" in result.stderr


def test_a_full_disk_ends_the_run(many: Path, tiny_dir: Path) -> None:
    with largest_file(1500):
        result = run(tiny_dir, "--schema", "schema.json", *MANY, "-o", "out.jsonl")
    assert result.exit_code == 1
    assert "out.jsonl: File too large; what was in it is still there" in result.stderr
    done = sources(many / "out.jsonl")
    assert 1 < len(done) < 12
    assert f"out.jsonl has {len(done)} documents, and the same command goes on" in result.stderr


def test_a_closed_pipe_ends_the_run(folder: Path, tiny_dir: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "constrain", "extract", "--schema", "schema.json", "one.txt", "--model"]
    process = subprocess.run([*command, str(tiny_dir)], stdout=writer, stderr=-1, text=True, check=False)
    os.close(writer)
    assert process.returncode == 1
    assert process.stderr == "Error: nobody reads the output any more\n"


@pytest.mark.parametrize(("times", "done"), [(1, range(3, 5)), (2, range(3, 4))])
def test_ctrl_c(many: Path, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch, times: int, done: range) -> None:
    """Pressed when the third document is done, and nothing or one other has started."""
    update = RunReport.update

    def interrupted(report: RunReport, progress: Progress, line: Line | None) -> None:
        update(report, progress, line)
        for _ in range(times if progress.documents == 3 else 0):
            os.kill(os.getpid(), signal.SIGINT)

    args = ("--schema", "schema.json", *MANY, "-o", "out.jsonl", "--jobs", "1")
    with monkeypatch.context() as patch:
        patch.setattr(RunReport, "update", interrupted)
        result = run(tiny_dir, *args)
    assert result.exit_code == 130
    finished = sources(many / "out.jsonl")
    assert len(finished) in done
    assert f"out.jsonl has {counted(len(finished), 'document')}, and the same command goes on" in result.stderr
    assert run(tiny_dir, *args).exit_code == 0
    assert sources(many / "out.jsonl") == list(MANY)


def test_the_first_interrupt_is_noted_and_the_second_raised(capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupt("once more") as interrupt:
        assert not interrupt.requested
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    assert capfd.readouterr().err == "\nonce more\n"


def test_workers_of_a_cluster_have_one_gpu_each(tiny_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"type": "boolean"}')
    (tmp_path / "text.txt").write_text("yes")
    arguments = ["--schema", str(tmp_path / "schema.json"), str(tmp_path / "text.txt")]
    result = run(tiny_dir, *arguments, "--ray", "local", "--tensor-parallel")
    assert result.exit_code == 2 and "a worker of --ray has one GPU" in result.stderr
    result = run(tiny_dir, *arguments, "--tensor-parallel", "--confidence", "no")
    assert result.exit_code == 0 and json.loads(result.stdout)["record"] in (True, False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["one.txt", "--column", "text"], "column 'text' is one of tables"),
        (["one.txt", "--retry-failed"], "--retry-failed needs -o"),
        (["one.txt", "--encoding", "cp1"], "there is no encoding of texts 'cp1'"),
    ],
)
def test_options_without_effect_are_refused(folder: Path, tiny_dir: Path, options: list[str], message: str) -> None:
    result = run(tiny_dir, "--schema", "schema.json", *options)
    assert result.exit_code != 0 and message in result.stderr


def test_a_member_that_a_schema_has_twice_is_an_error(folder: Path, tiny_dir: Path) -> None:
    (folder / "twice.json").write_text('{"type": "object", "properties": {"a": {}, "a": {"type": "integer"}}}')
    result = run(tiny_dir, "--schema", "twice.json", "one.txt")
    assert "twice.json is not JSON: an object has the member 'a' twice" in result.stderr


def test_the_limit_counts_files_once(folder: Path, tiny_dir: Path) -> None:
    result = run(tiny_dir, "--schema", "schema.json", "one.txt", "./one.txt", "one.txt", "two.txt", "--limit", "2")
    assert [json.loads(line)["source"] for line in result.stdout.splitlines()] == ["one.txt", "two.txt"]
