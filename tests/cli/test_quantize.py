"""``constrain quantize``."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from constrain.cli import cli


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["quantize", *arguments], env={"COLUMNS": "120"})


def test_a_model_is_converted_and_can_be_used(tiny_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text(json.dumps("The quick brown fox jumps over the lazy dog. " * 4))
    out = str(tmp_path / "out")
    result = run(str(tiny_dir), out, "--calibration", str(tmp_path / "texts.jsonl"))
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"{out}: 4 bits in groups of 32, calibrated with ")
    assert lines[1].endswith(" MB of weights, before 0.2 MB")
    assert lines[2].startswith("error of the products of a layer: ") and "% at most (model.layers." in lines[2]
    again = run(str(tiny_dir), out, "--calibration", str(tmp_path / "texts.jsonl"))
    assert again.stdout == result.stdout
    used = CliRunner().invoke(cli, ["generate", "hello", "--model", out, "--choice", "a", "--choice", "b"])
    assert used.stdout in ("a\n", "b\n"), used.output


def test_options_and_json(tiny_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(str(tiny_dir), str(out), "--bits", "8", "--group-size", "0", "--head-bits", "8", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["bits"], found["group_size"], found["tokens"], found["folder"]) == (8, None, 0, str(out))
    assert "lm_head" in found["errors"] and len(found["errors"]) == 15
    groups = json.loads((out / "config.json").read_text())["quantization_config"]["config_groups"]
    assert [group["weights"]["strategy"] for group in groups.values()] == ["channel", "channel"]


def test_mistakes_are_said(tiny_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "a").write_text("")
    result = run(str(tiny_dir), str(tmp_path / "used"))
    assert result.exit_code == 1 and "not an empty folder" in result.stderr
    assert run(str(tiny_dir), str(tmp_path / "out"), "--bits", "3").exit_code == 2
