"""Random texts of many schemas: each must end, parse, satisfy two validators, and be accepted in other formats."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema_rs
import pytest
from walks import walk

from constrain.engine import Vocabulary, compile_json_schema

SCHEMAS = sorted((Path(__file__).parent.parent / "data" / "schemas").glob("*.json"))
OPTIONS: list[dict[str, Any]] = [
    {},
    {"property_order": "schema"},
    {"whitespace": "compact"},
    {"whitespace": 2, "property_order": "schema"},
    {"whitespace": "any"},
]


class Number(str):
    """A number with a fraction or an exponent, as its text."""


def test_the_schemas_are_many() -> None:
    assert len(SCHEMAS) >= 60


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.stem)
def test_every_text_is_a_valid_document(path: Path, bpe_vocab: Vocabulary) -> None:
    text = path.read_text()
    schema = json.loads(text)
    exact = json.loads(text, parse_float=Decimal)
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    validator = kind(exact, format_checker=kind.FORMAT_CHECKER)
    second = jsonschema_rs.validator_for(schema, validate_formats=True)
    rng = random.Random(path.stem)
    for i, options in enumerate(OPTIONS * 4):
        grammar = compile_json_schema(schema, bpe_vocab, **options)
        document = walk(grammar, rng, steps=rng.choice([2, 10, 40]), structure=(i % 3) / 2)
        with localcontext() as context:
            context.prec = 400
            validator.validate(json.loads(document, parse_float=exact_number))
        assert second.is_valid(json.loads(document, parse_float=short_number)), document
        for other in respelled(json.loads(document, parse_float=Number), rng, options):
            matcher = grammar.matcher()
            assert matcher.accept_bytes(other.encode()) and matcher.is_accepting(), other


def exact_number(text: str) -> int | Decimal:
    """A number with a fraction or an exponent; the validator knows integers only as ``int``."""
    number = Decimal(text)
    return int(number) if number == number.to_integral_value() else number


def short_number(text: str) -> float:
    """A number with a fraction or an exponent, as an ``int`` if it is one."""
    return int(text[:-2]) if text.endswith(".0") else float(text)


def respelled(value: Any, rng: random.Random, options: dict[str, Any]) -> Iterable[str]:
    """The same value as other serialisers would write it."""
    whitespace = options.get("whitespace", "bounded")
    if isinstance(whitespace, int):
        yield serialised(value, ",", ": ", indent=whitespace)
        return
    yield serialised(value, ",", ":")
    if whitespace != "compact":
        yield serialised(value, ", ", ": ")
        yield serialised(value, ",", ": ", indent=1)
    if "property_order" not in options:
        yield serialised(shuffled(value, rng), ",", ":")


def serialised(value: Any, comma: str, colon: str, indent: int | None = None, level: int = 0) -> str:
    """A value as ``json.dumps`` would write it, but for numbers, which stay as they are."""

    def listed(brackets: str, parts: list[str]) -> str:
        inner, outer = ("\n" + " " * (indent * n) if indent and parts else "" for n in (level + 1, level))
        return brackets[0] + inner + (comma + inner).join(parts) + outer + brackets[1]

    if isinstance(value, Number):
        return str(value)
    if isinstance(value, list):
        return listed("[]", [serialised(item, comma, colon, indent, level + 1) for item in value])
    if isinstance(value, dict):
        members = ((json.dumps(name, ensure_ascii=False), member) for name, member in value.items())
        return listed("{}", [name + colon + serialised(m, comma, colon, indent, level + 1) for name, m in members])
    return json.dumps(value, ensure_ascii=False)


def shuffled(value: Any, rng: random.Random) -> Any:
    if isinstance(value, list):
        return [shuffled(item, rng) for item in value]
    if isinstance(value, dict):
        return {name: shuffled(value[name], rng) for name in rng.sample(list(value), len(value))}
    return value
