"""Every reason for which a schema is refused is on the page about JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = " ".join((ROOT / "docs" / "reference" / "json-schema.md").read_text(encoding="utf-8").split())
ENGINE = ROOT / "csrc" / "engine"
SCHEMA = [*sorted((ENGINE / "schema").glob("*.cpp")), *sorted((ENGINE / "json").rglob("*.cpp"))]
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
REFUSAL = re.compile(r"(?:\bleave_out\b|Kind::unsupported\b|\bconst reason =)[^;]*;")


def refusals() -> Iterator[str]:
    """The texts of statements that refuse a keyword; a text in parts is several."""
    for path in SCHEMA:
        for statement in REFUSAL.findall(path.read_text(encoding="utf-8")):
            yield from (text.strip("; `") for text in LITERAL.findall(statement) if " " in text.strip())


def limits() -> Iterator[str]:
    """The kinds of limits that are reached anywhere in the engine or on the way into it."""
    for path in [*sorted(ENGINE.rglob("*.cpp")), *sorted((ROOT / "csrc" / "bindings").glob("*.cpp"))]:
        text = path.read_text(encoding="utf-8")
        yield from re.findall(r'(?:ResourceLimit(?: \w+)?\(|exceeded\()"(\w+)"', text)


def test_the_reasons_are_found() -> None:
    assert len(set(refusals())) >= 4
    assert {"max_cells", "max_bytes", "max_seconds", "search_states"} <= set(limits())


@pytest.mark.parametrize("kind", sorted(set(limits())))
def test_limits_are_documented(kind: str) -> None:
    assert f"`{kind}`" in PAGE


@pytest.mark.parametrize("reason", sorted(set(refusals())))
def test_reasons_are_documented(reason: str) -> None:
    assert reason in PAGE
