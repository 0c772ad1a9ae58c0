"""Structural tags, as XGrammar, vLLM and SGLang write them: text in which tags enclose parts of a given form.

There are two notations: ``{"structures": [{"begin", "schema", "end"}], "triggers": [...]}``, and a tree of formats,
``{"type": "structural_tag", "format": {"type": ...}}``. Both are translated into a Lark grammar, in which schemas,
patterns and unconstrained text are grammars of their own.
"""

from __future__ import annotations

from constrain.engine.structural_tags.compile import TranslatedTag, compile_structural_tag, lark_of_structural_tag

__all__ = ["TranslatedTag", "compile_structural_tag", "lark_of_structural_tag"]
