"""Commands that need no model start without torch, which takes seconds to import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from constrain.cli import cli

SCHEMA = {"type": "object", "properties": {"paid": {"type": "boolean"}}, "required": ["paid"]}
RECORD = {"key": "1", "source": "one.txt", "record": {"paid": True}}

#: Runs commands one after the other in one process, and prints for each whether torch is loaded, and its exit code.
SCRIPT = """
import json, sys
from constrain.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as end:
        print(json.dumps({"arguments": arguments, "code": int(end.code or 0), "torch": "torch" in sys.modules}))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: schemas, a document, and its gold."""
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "broken.json").write_text('{"type": "object", "required": 3}')
    (tmp_path / "gold.jsonl").write_text(json.dumps(RECORD) + "\n")
    (tmp_path / "one.txt").write_text("yes, please")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands_without_a_model_do_not_load_torch(folder: Path, tiny_dir: Path) -> None:
    extract = ["extract", "--model", str(tiny_dir), "one.txt", "-o", "records.jsonl", "--schema"]
    assert CliRunner().invoke(cli, [*extract, "schema.json"]).exit_code == 0
    commands = {
        0: [
            [*extract, "schema.json"],
            ["check-schema", "schema.json"],
            ["review", "records.jsonl", "-o", "page.html"],
            ["evaluate", "records.jsonl", "--gold", "gold.jsonl"],
            ["--help"],
            ["extract", "--help"],
        ],
        1: [[*extract, "broken.json"]],
        2: [[*extract, "schema.json", "--limit", "0"], [*extract, "schema.json", "--limit", "1", "--sample", "1"]],
    }
    expected = [
        {"arguments": arguments, "code": code, "torch": False}
        for code, listed in commands.items()
        for arguments in listed
    ]
    arguments = [sys.executable, "-c", SCRIPT, json.dumps([each["arguments"] for each in expected])]
    run = subprocess.run(arguments, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in run.stdout.splitlines() if line.startswith('{"arguments"')]
    assert found == expected, run.stderr
    assert "0 records of 1 document" in run.stderr
