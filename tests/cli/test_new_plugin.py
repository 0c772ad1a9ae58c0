"""``constrain new-plugin``: a package that works as it is; and filters given by name on the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import constrain
from constrain.cli import cli
from constrain.cli.new_plugin import plugin_files
from constrain.filters import FilterInfo, NamedFilter

ROOT = Path(constrain.__file__).parents[1]
PYPROJECT, GUIDE = ROOT / "pyproject.toml", ROOT / "docs" / "howto" / "write-a-filter-plugin.md"


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert run("new-plugin", "even-letters").exit_code == 0
    return tmp_path / "constrain-even-letters"


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, args)


def test_its_tests_pass(plugin: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=plugin, capture_output=True, text=True)
    assert "4 passed" in done.stdout, done.stdout


def test_it_is_found_when_it_is_installed(plugin: Path, tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(tmp_path / "site"), str(plugin)], check=True)
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    script = "from constrain.filters import available; print(*((info.name, info.origin) for info in available()))"
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert "('even-letters', 'constrain-even-letters')" in done.stdout, done.stderr


@pytest.mark.skipif(not PYPROJECT.is_file(), reason="needs the checkout")
def test_it_depends_on_the_package_that_this_one_is_as_all_plugins_do() -> None:
    (own,) = re.findall(r'^name = "(.+)"$', PYPROJECT.read_text(), re.MULTILINE)
    assert f'dependencies = ["{own}"]' in plugin_files("letters")["pyproject.toml"]
    for path in ROOT.glob("plugins/*/pyproject.toml"):
        assert f'\ndependencies = ["{own}"' in path.read_text(), path


@pytest.mark.skipif(not GUIDE.is_file(), reason="needs the checkout")
@pytest.mark.parametrize("name", ["pyproject.toml", "constrain_letters.py", "test_constrain_letters.py"])
def test_the_guide_shows_its_files(name: str) -> None:
    assert f":caption: {name}\n\n{plugin_files('letters')[name]}```" in GUIDE.read_text()


def test_nothing_is_overwritten(plugin: Path) -> None:
    result = run("new-plugin", "even-letters")
    assert result.exit_code == 1 and "constrain-even-letters is there already" in result.stderr


def test_the_name_of_a_filter_that_there_is_cannot_be_taken() -> None:
    result = run("new-plugin", "regex")
    assert result.exit_code == 1 and "has a filter 'regex' already" in result.stderr


@pytest.mark.parametrize("name", ["Letters", "a b", "../x", "1st", "a--b"])
def test_names_that_are_none(name: str) -> None:
    assert run("new-plugin", name).exit_code == 2


# --filter


def factory(
    model: Any, tokenizer: Any, word: str = "", count: int = 0, several: str | list[str] = "", union: str | None = None
) -> None: ...


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("mine", {}),
        ("mine:word=12", {"word": "12"}),
        ("mine:word=a,b=[1]", {"word": "a,b=[1]"}),
        ("mine:word=a=b,count=3", {"word": "a=b", "count": 3}),
        ('mine:several=["a", "b"],union=["a"]', {"several": ["a", "b"], "union": '["a"]'}),
        ("mine:several=12", {"several": "12"}),
        ("mine:count=many", {"count": "many"}),
    ],
)
def test_filters_as_text(text: str, arguments: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    info = FilterInfo("mine", "mine", "mine", "1", "", factory)
    monkeypatch.setattr("constrain.filters.named.find", {"mine": info}.__getitem__)
    assert NamedFilter.parse(text) == NamedFilter("mine", arguments)


def test_a_filter_of_generate(tiny_dir: Path) -> None:
    args = ("generate", "Say it: ", "--model", str(tiny_dir), "--max-new-tokens", "20")
    result = run(*args, "--filter", "regex:pattern=[0-9]{4}")
    assert re.fullmatch("[0-9]{4}", result.stdout.strip()), result.output
    assert "no filter is called 'nonsense'" in run(*args, "--filter", "nonsense").stderr
    assert "is not of the form regex:pattern=VALUE" in run(*args, "--filter", "regex:[0-9]").stderr
    assert "filter 'regex' takes" in run(*args, "--filter", "regex:colour=red").stderr


def test_a_filter_of_extract_changes_the_keys(tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.json").write_text('{"enum": ["a", "b"]}')
    (tmp_path / "one.txt").write_text("yes")
    args = ("extract", "--schema", "schema.json", "one.txt", "--model", str(tiny_dir))
    lines = [json.loads(run(*args, "--filter", f'regex:pattern="{kind}"').stdout) for kind in "ab"]
    assert [line["record"] for line in lines] == ["a", "b"]
    assert lines[0]["key"] != lines[1]["key"]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pathlib.Path.mkdir", fail)
    result = run("new-plugin", "even-letters")
    assert result.exit_code == 1
    assert "constrain-even-letters cannot be written: permission denied" in result.output


def fail(path: Path) -> None:
    raise PermissionError(13, "Permission denied")
