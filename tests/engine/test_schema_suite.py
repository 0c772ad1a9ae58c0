"""The JSON-Schema-Test-Suite, draft 2020-12: nothing invalid is accepted, and what valid is refused is known.

A schema that nothing satisfies refuses every instance. Standard formats are asserted, which the suite allows for in its
optional part; the numbers below say how many valid instances each file has that are never written, and why.
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
from constrain.errors import UnsatisfiableSchema

SUITE = Path(__file__).parent.parent / "data" / "json-schema-test-suite"
TESTS = SUITE / "tests" / "draft2020-12"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
FILES = sorted(str(path.relative_to(TESTS).with_suffix("")) for path in TESTS.rglob("*.json"))

INTEGERS = {"const": 4, "enum": 4, "type": 1}  # integers are written without fraction: not 1.0
ASSERTED = {"format": 19}  # formats are more than annotations
DIGITS = {"optional/bignum": 4, "optional/float-overflow": 1}  # numbers have at most 30 digits on each side
READINGS = {"optional/ecmascript-regex": 4}  # characters that dialects of regular expressions read differently
FORMATS = {  # texts that some common validator does not accept, or that no regular language tells apart
    "date-time": 3,
    "duration": 1,
    "ecmascript-regex": 6,
    "hostname": 15,
    "idn-email": 1,
    "idn-hostname": 22,
    "relative-json-pointer": 1,
    "time": 6,
    "uri-template": 2,
}
NEVER_WRITTEN = {
    **INTEGERS,
    **ASSERTED,
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
    for group in json.loads((TESTS / f"{name}.json").read_text()):
        grammar = compiled(group["schema"], byte_vocab, remotes)
        for test in group["tests"]:
            accepted = grammar is not None and judge(grammar, test["data"])
            assert test["valid"] or not accepted, (group["description"], test["description"])
            if test["valid"] and not accepted:
                refused.append((group["description"], test["description"]))
    assert len(refused) == NEVER_WRITTEN.get(name, 0), refused


def compiled(schema: Any, vocabulary: Vocabulary, remotes: Registry[Any]) -> CompiledGrammar | None:
    """The grammar of a schema; nothing where no instance satisfies it."""
    if isinstance(schema, dict):
        schema = {"$schema": DRAFT, **schema}
    try:
        return compile_json_schema(schema, vocabulary, registry=remotes)
    except UnsatisfiableSchema:
        return None


def test_the_counts_are_of_files_that_exist() -> None:
    assert set(NEVER_WRITTEN) <= set(FILES)
