"""The pages about the code name files, classes and functions that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["architecture.md", "engine.md"]
CODE = re.compile(r"`([^`\n]+)`")
SUFFIXES = {".py", ".cpp", ".h", ".cu", ".cuh", ".md", ".toml"}


@cache
def text_of(page: str) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", (ROOT / "docs" / page).read_text(), flags=re.DOTALL | re.MULTILINE)


def find(path: str) -> Path | None:
    """Return a file or folder that is named from the root of the tree, or by the end of its path in the sources."""
    tries = [ROOT / base / path for base in ("", "constrain", "csrc", "csrc/engine")]
    named = (each for base in ("constrain", "csrc") for each in (ROOT / base).rglob(path))
    return next((each for each in tries if each.exists()), None) or next(named, None)


def paths(page: str) -> Iterator[str]:
    for code in CODE.findall(text_of(page)):
        is_path = "/" in code or Path(code).suffix in SUFFIXES
        if is_path and re.fullmatch(r"[\w./-]+", code):
            yield code


@pytest.mark.parametrize("page", PAGES)
def test_every_file_exists(page: str) -> None:
    named = set(paths(page))
    assert named and not [path for path in sorted(named) if find(path) is None]


def test_a_missing_file_is_found() -> None:
    assert find("runtime/runtime.py") is not None and find("runtime/nonsense.py") is None


def names_in(path: Path) -> set[str]:
    """Return the names that a file, or the files of a folder, define; methods with and without their class."""
    if path.is_dir():
        return set().union(*(names_in(each) for each in path.rglob("*") if each.suffix in SUFFIXES))
    if path.suffix != ".py":
        return set(re.findall(r"\w+(?:::\w+)?", path.read_text()))
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        if isinstance(node, ast.ClassDef):
            inner = [each for each in ast.walk(node) if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
            names |= {f"{node.name}.{each.name}" for each in inner}
            stores = [each for each in ast.walk(node) if isinstance(each, (ast.Name, ast.Attribute))]
            names |= {f"{node.name}.{each.id if isinstance(each, ast.Name) else each.attr}" for each in stores}
    return names


def rows() -> list[tuple[str, list[Path], list[str]]]:
    """Return the rows of the table of ideas: idea, files, and names of classes and functions."""
    table = text_of("architecture.md").split("## Where to find it")[1].split("\n## ")[0]
    found = []
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3 and "`" in cells[1]:
            files = [path for path in map(find, CODE.findall(cells[1])) if path is not None]
            found.append((cells[0], files, CODE.findall(cells[2])))
    return found


@pytest.mark.parametrize(("idea", "files", "names"), rows(), ids=[idea for idea, _, _ in rows()])
def test_every_name_is_defined_in_its_files(idea: str, files: list[Path], names: list[str]) -> None:
    defined = set().union(*map(names_in, files))
    assert files and not [name for name in names if name not in defined]


def test_names_of_a_file() -> None:
    names = names_in(ROOT / "constrain" / "runtime" / "scheduler.py")
    assert {"Scheduler", "Scheduler.admit", "admit"} <= names and "Scheduler.nonsense" not in names
    assert "Matcher::mask" in names_in(ROOT / "csrc" / "engine" / "matcher" / "matcher.cpp")
