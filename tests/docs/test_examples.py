"""The code blocks of README and docs run: each page from its first block to its last, in a folder of its own."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from sybil import Document, Example
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.myst import CodeBlockParser

from constrain.cli import cli
from constrain.demo import model_dir

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILE = re.compile(
    r"^```\{code-block\} \w+\n:caption: (?P<name>\S+)\n\n(?P<content>.*?\n)```$", re.DOTALL | re.MULTILINE
)

#: Files that the README speaks of without showing them.
README_FILES = {
    "schema.json": '{"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 2}',
    "letters/first.txt": "Dear Ada, all is well here. Yours, Grace",
    "gold.jsonl": '{"source": "letters/first.txt", "record": ["Grace"]}',
}


def run_console(example: Example) -> None:
    """Run the commands of a console block: constrain's in this process, and Python scripts.

    What make and pip name only has to exist.
    """
    for line in str(example.parsed).splitlines():
        words = shlex.split(line.removeprefix("$ "))
        if words[0] == "make":
            assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text()
            continue
        if words[:2] == ["pip", "install"]:
            assert (ROOT / words[2] / "pyproject.toml").is_file()
            continue
        if words[0] == "python":
            subprocess.run([sys.executable, *map(expand_one, words[1:])], check=True)
            continue
        assert words[0] == "constrain", f"no way to run {line!r}"
        result = CliRunner().invoke(cli, [name for word in words[1:] for name in expand(word)])
        assert result.exit_code == 0, f"{line}\n{result.output}"


def expand(word: str) -> list[str]:
    """Expand what the shell would."""
    word = expand_one(word)
    return sorted(map(str, Path().glob(word))) if "*" in word else [word]


def expand_one(word: str) -> str:
    return word.replace("$MODEL_DIR", str(model_dir()))


PARSERS = [CodeBlockParser("python", PythonEvaluator()), CodeBlockParser("console", run_console)]


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES])
def test_examples_of(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = Document.parse(str(page), *PARSERS)
    files = {match["name"]: match["content"] for match in FILE.finditer(document.text)}
    for name, content in (README_FILES if page.name == "README.md" else files).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for example in document.examples():
        example.evaluate()


def test_the_pages_hold_examples() -> None:
    counts = {page.name: len(list(Document.parse(str(page), *PARSERS).examples())) for page in PAGES}
    assert counts["README.md"] >= 3
    assert all(counts[name] > 3 for name in ("tutorial.md", "extract-from-files.md", "grammars.md"))
