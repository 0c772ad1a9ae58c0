"""``constrain evaluate-model``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from constrain.cli import cli
from constrain.quantization import evaluate_model


@pytest.fixture
def text(tmp_path: Path) -> str:
    (tmp_path / "text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 3)
    return str(tmp_path / "text.txt")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["evaluate-model", *arguments], env={"COLUMNS": "100"})


def test_the_table_has_the_figures(tiny_dir: Path, text: str) -> None:
    found = evaluate_model(tiny_dir, Path(text).read_text(), against=tiny_dir)
    result = run(str(tiny_dir), "--text", text, "--against", str(tiny_dir))
    assert result.exit_code == 0, result.output
    rows = {
        cells[0].strip(): cells[1].strip()
        for cells in (line.strip("│┃").split("│") for line in result.stdout.splitlines())
        if len(cells) == 2
    }
    assert rows["perplexity"] == rows["perplexity of the original"] == f"{found.perplexity:.4f}"
    assert rows["change"] == "+0.00%" and rows["same most likely token"] == "100.00%"
    assert rows["divergence, p99"] == "0.00000"
    assert f"{found.tokens} tokens" in result.stdout


def test_json_and_options(tiny_dir: Path, text: str) -> None:
    result = run(str(tiny_dir), "--text", text, "--context", "16", "--stride", "4", "--max-tokens", "20", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found == evaluate_model(tiny_dir, Path(text).read_text(), context=16, stride=4, max_tokens=20).to_json()
    assert found["divergence"] is None and 20 <= found["tokens"] < 36


def test_mistakes_are_said(tiny_dir: Path, text: str, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("{}")
    result = run(str(tiny_dir), "--text", str(tmp_path / "bad.jsonl"))
    assert result.exit_code == 1 and "line 1 of" in result.stderr and "is no text" in result.stderr
    result = run(str(tiny_dir), "--text", text, "--context", "16", "--stride", "16")
    assert result.exit_code == 1 and "stride must be a whole number from 1 to 15, not 16" in result.stderr
