"""``constrain calibrate``, from the lines of a run to probabilities of another one."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from constrain.cli import cli
from constrain.extract import Calibration


def write(path: Path, lines: list[dict[str, object]]) -> str:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Records and gold of 100 documents: booleans are right in one of two, quotes in nine of ten, all given 0.99."""
    found, gold = [], []
    for number in range(100):
        confidence = {"/ok": {"probability": 0.99}, "/city": {"probability": 0.99}}
        record = {"ok": True, "city": "Lyon"}
        line = {"key": str(number), "source": str(number), "record": record, "spans": {"/city": [0, 4]}}
        found.append(line | {"confidence": confidence})
        right = {"ok": number % 4 < 2, "city": "Lyon" if number // 2 % 10 else "Oslo"}
        gold.append({"source": str(number), "record": right})
    return write(tmp_path / "records.jsonl", found), write(tmp_path / "gold.jsonl", gold)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["calibrate", *arguments])


def test_shares_of_right_values(files: tuple[str, str], tmp_path: Path) -> None:
    records, gold = files
    path = tmp_path / "found.json"
    result = run(records, "--gold", gold, "-o", str(path))
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"{path}: 200 values; expected calibration error 0.290 before, 0.0")
    calibration = Calibration.load(path)
    assert set(calibration.curves) == {"boolean", "quote", "others"}
    shares = {kind: calibration.probability(kind, 0.99) for kind in ("boolean", "quote", "number")}
    assert shares == pytest.approx({"boolean": 0.5, "quote": 0.9, "number": 0.7}, abs=0.02)


def test_few_values(files: tuple[str, str], tmp_path: Path) -> None:
    records, gold = (Path(each).read_text().splitlines(keepends=True) for each in files)
    few, their_gold = tmp_path / "few.jsonl", tmp_path / "their_gold.jsonl"
    few.write_text("".join(records[:15]))
    their_gold.write_text("".join(gold[:15]))
    result = run(str(few), "--gold", str(their_gold), "-o", str(tmp_path / "found.json"))
    assert result.exit_code == 0 and result.output.endswith("30 values; expected calibration error 0.290 before\n")
    few.write_text("".join(records[:14]))
    result = run(str(few), "--gold", str(their_gold), "-o", str(tmp_path / "found.json"))
    assert result.exit_code == 1 and "a calibration needs at least 30 values, not 28" in result.output


def test_values_that_are_hardly_more_probable_than_null(tmp_path: Path) -> None:
    """Of values 1.1 times as probable as null three in four are invented; of others twice as probable, none."""
    found, gold = [], []
    for number in range(60):
        probability, absent = (0.44, number % 8) if number % 2 else (0.6, 0)
        null = 0.4 if number % 2 else 0.3
        alternatives = {"present": 1 - null, "null": null}
        confidence = {"/due": {"probability": probability, "alternatives": alternatives}}
        found.append({"key": str(number), "source": str(number), "record": {"due": 3}, "confidence": confidence})
        gold.append({"source": str(number), "record": {"due": None if absent > 1 else 3}})
    records = write(tmp_path / "records.jsonl", found)
    path = tmp_path / "found.json"
    result = run(records, "--gold", write(tmp_path / "gold.jsonl", gold), "-o", str(path))
    assert result.exit_code == 0, result.output
    assert result.output.endswith("values that are less than 1.5 times as probable as null become null\n")
    assert Calibration.load(path).null_margin == 1.5


def test_a_disk_that_is_full_is_told(files: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    records, gold = files
    result = run(records, "--gold", gold, "-o", str(tmp_path / "calibration.json"))
    assert result.exit_code == 1 and "the calibration cannot be written" in result.output


@pytest.mark.parametrize("number", [0, 1])
def test_what_it_reads_is_not_replaced(files: tuple[str, str], number: int) -> None:
    records, gold = files
    before = Path(files[number]).read_text()
    result = run(records, "--gold", gold, "-o", files[number])
    assert result.exit_code == 2 and "would be replaced, but is read" in result.output
    assert Path(files[number]).read_text() == before
