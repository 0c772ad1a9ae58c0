"""The demo shows records beside documents with highlighted quotes, and writes the page to review them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from constrain.cli import cli


def test_the_demo_writes_records_with_spans_and_a_page(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["demo", "--output", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "valid records" in result.output and "review.html" in result.output
    lines = [json.loads(line) for line in (tmp_path / "out" / "records.jsonl").read_text().splitlines()]
    assert len(lines) >= 12
    for line in lines:
        text = Path(line["source"]).read_text()
        for pointer, (start, end) in line.get("spans", {}).items():
            value = line["record"]
            for step in pointer.split("/")[1:]:
                value = value[int(step)] if isinstance(value, list) else value[step]
            assert text[start:end] == value
    assert "<html" in (tmp_path / "out" / "review.html").read_text()


@pytest.mark.parametrize("output", ["file/x", "taken"])
def test_a_folder_that_cannot_be_written_is_an_error_before_the_work(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "taken" / "records.jsonl").mkdir(parents=True)
    monkeypatch.setattr("constrain.llm.load", lambda: pytest.fail("the model was loaded"))
    result = CliRunner().invoke(cli, ["demo", "-o", str(tmp_path / output)])
    assert result.exit_code == 1
    assert f"{tmp_path / output} cannot be written: " in result.output
