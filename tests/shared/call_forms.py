"""A vocabulary for the forms of calls of all families, and what answers consist of."""

from __future__ import annotations

import json
import re
from typing import Any

from constrain.engine import Vocabulary
from constrain.serve.tools import FORMS
from constrain.serve.tools.reader import CallArguments, CallStarted, Part, Text

SPECIAL = re.compile(r"<[|｜][^<>]*[|｜]>|\[[A-Z_]{3,}\]")


def vocabulary() -> Vocabulary:
    """Bytes, and all special tokens of all forms."""
    texts = [text for form in FORMS.values() for text in (*vars(form).values(), *(form.reasoning or ()))]
    names = sorted({name for text in texts if isinstance(text, str) for name in SPECIAL.findall(text)})
    tokens = [bytes([byte]) for byte in range(256)] + [name.encode() for name in ("</s>", *names)]
    return Vocabulary.from_tokens(tokens, eos_ids=[256], special_ids=range(256, len(tokens)))


VOCABULARY = vocabulary()


def calls_of(parts: list[Part]) -> list[tuple[str, Any]]:
    found = {part.index: [part.name, ""] for part in parts if isinstance(part, CallStarted)}
    for part in parts:
        if isinstance(part, CallArguments):
            found[part.index][1] += part.text
    return [(name, json.loads(arguments)) for name, arguments in found.values()]


def text_of(parts: list[Part], kind: str = "content") -> str:
    return "".join(part.text for part in parts if isinstance(part, Text) and part.kind == kind)
