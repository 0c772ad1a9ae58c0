"""Includes of the C++ sources: no circle of files, and arrows between the folders of the engine that go one way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CSRC = ROOT / "csrc"
SOURCES = {".h", ".cpp", ".inc", ".cu", ".cuh"}
MAX_IN_A_FOLDER = 40
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)

# Folders of csrc/engine, and those that each may include besides itself. Deeper folders belong to the first one.
ARROWS: dict[str, set[str]] = {}
for _folder, _direct in {
    "base": [],
    "text": ["base"],
    "automata": ["text"],
    "grammar": ["automata"],
    "json": ["grammar"],
    "cfg": ["grammar"],
    "schema": ["json"],
    "tokens": ["text"],
    "masks": ["grammar", "tokens"],
    "completion": ["masks"],
    "matcher": ["completion"],
}.items():
    ARROWS[_folder] = set(_direct).union(*(ARROWS[direct] for direct in _direct))

Files = Mapping[str, str]  # the texts of files by their paths below csrc/
Check = Callable[[Files], Iterator[str]]


def source_files() -> dict[str, str]:
    paths = [path for path in sorted(CSRC.rglob("*")) if path.suffix in SOURCES]
    return {path.relative_to(CSRC).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def includes(text: str) -> list[str]:
    return [target for quote, target in INCLUDE.findall(text) if quote == '"']


def folder_of(path: str) -> str:
    """``engine/automata/regex/regex.h`` -> ``automata``."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 else ""


def circles(files: Files) -> Iterator[str]:
    """Circles of files that include one another, found depth first."""
    done: set[str] = set()
    path: list[str] = []

    def visit(file: str) -> Iterator[str]:
        if file in path:
            yield " -> ".join([*path[path.index(file) :], file])
        if file in done or file in path:
            return
        path.append(file)
        for target in includes(files[file]):
            if target in files:
                yield from visit(target)
        done.add(path.pop())

    for file in files:
        yield from visit(file)


def missing(files: Files) -> Iterator[str]:
    """Includes that are no full path below csrc/."""
    for file, text in files.items():
        for target in includes(text):
            if target not in files:
                yield f"{file} includes {target}, which is no path below csrc/"


def wrong_arrows(files: Files) -> Iterator[str]:
    """Includes against the arrows between the folders of the engine."""
    for file, text in files.items():
        if not file.startswith("engine/"):
            continue
        folder = folder_of(file)
        if folder not in ARROWS:
            yield f"{file} is in no known folder"
            continue
        for target in includes(text):
            if target.startswith("engine/") and folder_of(target) not in ARROWS[folder] | {folder}:
                yield f"{file} includes {target}"


def foreign(files: Files) -> Iterator[str]:
    """Includes of the engine that reach beyond it and the standard library."""
    for file, text in files.items():
        if not file.startswith("engine/"):
            continue
        for quote, target in INCLUDE.findall(text):
            # Headers of the standard library have no folder and no suffix.
            known = target.startswith("engine/") if quote == '"' else re.fullmatch(r"[a-z_0-9]+", target)
            if not known:
                yield f"{file} includes {target}"


def crowded(files: Files) -> Iterator[str]:
    """Folders with too many source files."""
    count: dict[str, int] = {}
    for file in files:
        folder = file.rpartition("/")[0]
        count[folder] = count.get(folder, 0) + 1
    for folder, files_in_it in count.items():
        if files_in_it > MAX_IN_A_FOLDER:
            yield f"{folder} has {files_in_it} source files"


CHECKS: list[Check] = [circles, missing, wrong_arrows, foreign, crowded]


@pytest.mark.parametrize("check", CHECKS)
def test_sources(check: Check) -> None:
    found = list(check(source_files()))
    assert not found, "\n".join(found)


def test_sources_are_found() -> None:
    files = source_files()
    assert {folder_of(file) for file in files if file.startswith("engine/")} == set(ARROWS)
    assert sum(len(includes(text)) for text in files.values()) > 200


@pytest.mark.parametrize(
    ("check", "file", "text"),
    [
        (circles, "engine/base/errors.h", '#include "engine/base/planted.h"'),
        (missing, "engine/base/planted.h", '#include "errors.h"'),
        (wrong_arrows, "engine/base/planted.h", '#include "engine/text/utf8.h"'),
        (wrong_arrows, "engine/tokens/planted.h", '  # include "engine/automata/automaton.h"'),
        (wrong_arrows, "engine/grammar/planted.h", '#include "engine/tokens/vocabulary.h"'),
        (wrong_arrows, "engine/masks/planted.h", '#include "engine/completion/completions.h"'),
        (wrong_arrows, "engine/planted.h", ""),
        (wrong_arrows, "engine/unknown/planted.h", ""),
        (foreign, "engine/base/planted.h", '#include "bindings/core.h"'),
        (foreign, "engine/base/planted.h", "#include <Python.h>"),
        (foreign, "engine/base/planted.h", "#include <pybind11/pybind11.h>"),
        (foreign, "engine/base/planted.h", "#include <cuda_runtime.h>"),
    ],
)
def test_planted_include_is_found(check: Check, file: str, text: str) -> None:
    files = {**source_files(), "engine/base/planted.h": '#include "engine/base/errors.h"'}
    assert any("planted" in bad for bad in check({**files, file: text}))


def test_crowded_folder_is_found() -> None:
    files = {f"engine/base/planted{i}.h": "" for i in range(MAX_IN_A_FOLDER + 1)}
    assert list(crowded(files)) == ["engine/base has 41 source files"]


def named_files(page: str) -> list[str]:
    """The headers that the page about the engine names, with their folders: a row of its table names both."""
    rows = [re.findall("`([^`]+)`", line) for line in page.splitlines() if line.startswith("| `")]
    listed = [f"engine/{folder}{file}" for folder, *files in rows if folder.endswith("/") for file in files]
    return [path for path in listed if path != "engine/csrc/engine/"] + re.findall(r"`csrc/(engine/[^`]+\.h)`", page)


def test_documented_files_exist() -> None:
    files = source_files()
    named = named_files((ROOT / "docs" / "engine.md").read_text(encoding="utf-8"))
    assert len(named) > 40
    assert [path for path in named if path not in files] == []
    assert {folder_of(path) for path in named} == set(ARROWS)
    assert named_files("| `masks/` | `planted.h` |") == ["engine/masks/planted.h"]
