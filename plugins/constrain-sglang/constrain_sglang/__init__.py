"""constrain as a grammar back end of SGLang: ``--grammar-backend constrain``.

SGLang calls :func:`register` in each of its processes, through the entry point ``sglang.srt.plugins``.
"""

from __future__ import annotations

__all__ = ["register"]

NAME = "constrain"


def register() -> None:
    """Register the back end, and its name as a choice; to be called any number of times."""
    from sglang.srt.arg_groups.choices import GRAMMAR_BACKEND_CHOICES, add_grammar_backend_choices
    from sglang.srt.constrained.base_grammar_backend import register_grammar_backend

    from constrain_sglang.create import create_backend

    register_grammar_backend(NAME, create_backend)
    if NAME not in GRAMMAR_BACKEND_CHOICES:
        add_grammar_backend_choices([NAME])
