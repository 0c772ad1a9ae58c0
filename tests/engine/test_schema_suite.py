"""The JSON-Schema-Test-Suite, draft 2020-12: nothing invalid is accepted, and what valid is refused is known.

A schema that nothing satisfies refuses every instance. Formats are asserted in the part of the suite that is about
them, and as the dialect says in the others; the numbers below say how many valid instances each file has that are never
written, and why.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from constrain.engine import CompiledGrammar, Vocabulary, compile_json_schema
from constrain.engine.json_schema import FormatPolicy
from constrain.errors import UnsatisfiableSchema

SUITE = Path(__file__).parent.parent / "data" / "json-schema-test-suite"
TESTS = SUITE / "tests" / "draft2020-12"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
FILES = sorted(str(path.relative_to(TESTS).with_suffix("")) for path in TESTS.rglob("*.json"))

DIGITS = {"optional/bignum": 4, "optional/float-overflow": 1}  # numbers have at most 30 digits on each side
READINGS = {"optional/ecmascript-regex": 4}  # characters that dialects of regular expressions read differently
FORMATS = {  # backreferences, and U-labels of more characters than surely fit once they are encoded
    "ecmascript-regex": 1,
    "idn-hostname": 4,
}
NEVER_WRITTEN = {
    **DIGITS,
    **READINGS,
    **{f"optional/format/{name}": count for name, count in FORMATS.items()},
}

Judge = Callable[..., bool]


@pytest.fixture(scope="module")
def remotes() -> Registry[Any]:
    """The documents that the suite refers to."""
    return Registry().with_resources(
        (
            f"http://localhost:1234/{path.relative_to(SUITE / 'remotes')}",
            Resource.from_contents(json.loads(path.read_text()), default_specification=DRAFT202012),
        )
        for path in (SUITE / "remotes").rglob("*.json")
    )


@pytest.mark.parametrize("name", FILES)
def test_official_suite(name: str, byte_vocab: Vocabulary, remotes: Registry[Any], judge: Judge) -> None:
    refused = []
    formats: FormatPolicy = "asserted" if name.startswith("optional/format/") else "dialect"
    for group in json.loads((TESTS / f"{name}.json").read_text()):
        grammar = compiled(group["schema"], byte_vocab, remotes, formats)
        for test in group["tests"]:
            accepted = grammar is not None and judge(grammar, test["data"])
            assert test["valid"] or not accepted, (group["description"], test["description"])
            if test["valid"] and not accepted:
                refused.append((group["description"], test["description"]))
    assert len(refused) == NEVER_WRITTEN.get(name, 0), refused


def compiled(
    schema: Any, vocabulary: Vocabulary, remotes: Registry[Any], formats: FormatPolicy
) -> CompiledGrammar | None:
    """The grammar of a schema; nothing where no instance satisfies it."""
    if isinstance(schema, dict):
        schema = {"$schema": DRAFT, **schema}
    try:
        return compile_json_schema(schema, vocabulary, registry=remotes, formats=formats)
    except UnsatisfiableSchema:
        return None


def test_the_counts_are_of_files_that_exist() -> None:
    assert set(NEVER_WRITTEN) <= set(FILES)
