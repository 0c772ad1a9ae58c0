"""The requests of the test: schemas of MaskBench, and what their outputs are judged by."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import jsonschema

from constrain.demo import model_dir
from constrain.engine import Vocabulary
from constrain.errors import GrammarError
from constrain.integrations.serving import compile_constraint

SCHEMAS = Path(__file__).parents[3] / "tests" / "data" / "maskbench.jsonl"

#: Tokens for a schema that constrain refuses, for the other back ends.
_UNKNOWN = 64


@dataclass(frozen=True)
class Case:
    """A schema, and the number of tokens that its shortest output needs."""

    name: str
    schema: Any
    needed: int = _UNKNOWN
    is_refused: bool = False


def read_cases(count: int) -> list[Case]:
    """Read the first schemas."""
    vocabulary = Vocabulary.from_pretrained(model_dir())
    lines = SCHEMAS.read_text(encoding="utf-8").splitlines()[:count]
    return [_case(json.loads(line), vocabulary) for line in lines]


def _case(line: dict[str, Any], vocabulary: Vocabulary) -> Case:
    name, schema = line["name"], line["schema"]
    try:
        grammar = compile_constraint("json", json.dumps(schema), vocabulary)
    except GrammarError:
        return Case(name, schema, is_refused=True)
    return Case(name, schema, grammar.matcher().min_tokens())


def verdict(case: Case, text: str) -> str:
    """Return whether an output is ``valid``, ``invalid`` or ``incomplete``."""
    try:
        document = _exact(text)
    except ValueError:
        return "incomplete"
    check = jsonschema.validators.validator_for(case.schema, default=jsonschema.Draft202012Validator)
    with localcontext() as context:
        context.prec = 1000
        return "valid" if check(_exact(json.dumps(case.schema))).is_valid(document) else "invalid"


def _exact(text: str) -> Any:
    """Parse JSON without rounding its numbers, of which long ones would no longer be multiples of what they are."""
    return json.loads(text, parse_float=Decimal)
