from __future__ import annotations

import re
from pathlib import Path

import outlines
import transformers

from constrain.engine import Vocabulary, compile_regex
from constrain.integrations.outlines import ConstraintLogitsProcessor

PATTERN = r"(yes|no)( [a-f]+)*!"


def test_a_generator_of_outlines_writes_what_the_grammar_allows_one_call_after_another(tiny_dir: Path) -> None:
    model = outlines.from_transformers(
        transformers.AutoModelForCausalLM.from_pretrained(tiny_dir),
        transformers.AutoTokenizer.from_pretrained(tiny_dir),
    )
    grammar = compile_regex(PATTERN, Vocabulary.from_pretrained(tiny_dir))
    processor = ConstraintLogitsProcessor(grammar, model.tensor_library_name, max_new_tokens=12)
    generator = outlines.Generator(model, processor=processor)
    for prompt in ("Is it red?", "Is it red? no"):
        assert re.fullmatch(PATTERN, generator(prompt, max_new_tokens=12))
