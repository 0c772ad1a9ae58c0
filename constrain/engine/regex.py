"""Compilation of regular expressions and of choices to grammars."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from constrain import _core
from constrain.arguments import check_text, texts_of
from constrain.engine.compiled_grammar import DEFAULT_LIMITS, CompiledGrammar, Limits, core_limits
from constrain.engine.vocabulary import Vocabulary, core_vocabulary
from constrain.errors import GrammarError, RegexError

_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}
_GLOBAL_FLAGS = re.compile(r"\(\?([a-z]+)\)")


def compile_regex(
    pattern: str | re.Pattern[str], vocab: Vocabulary, *, limits: Limits = DEFAULT_LIMITS
) -> CompiledGrammar:
    """Compile a regular expression: the texts that Python's :func:`re.fullmatch` matches.

    Args:
        pattern: as text, or compiled, with its flags.
        vocab: the vocabulary of the model.
        limits: limits on states, memory and time.

    Raises:
        RegexError: the pattern is malformed, or not regular, for example because of backreferences.
        ResourceLimit: a limit was reached.
        ArgumentError: another argument is of the wrong type.
    """
    text, shift = with_flags(pattern) if isinstance(pattern, re.Pattern) else (pattern, 0)
    check_text("the pattern", text, RegexError)
    try:
        core = _core.compile_regex(text, core_vocabulary(vocab), core_limits(limits))
    except RegexError as error:
        raise RegexError(error.reason, max(0, error.offset - shift)) from error
    return CompiledGrammar(core, vocab)


def compile_choices(choices: Iterable[str], vocab: Vocabulary, *, limits: Limits = DEFAULT_LIMITS) -> CompiledGrammar:
    """Compile a choice between given texts.

    Raises:
        GrammarError: there is no text, or one is not a ``str``.
        ResourceLimit: a limit was reached.
        ArgumentError: another argument is of the wrong type.
    """
    texts = texts_of("choices", choices, GrammarError)
    if not texts:
        raise GrammarError("at least one choice is needed")
    return CompiledGrammar(_core.compile_choices(texts, core_vocabulary(vocab), core_limits(limits)), vocab)


def flag_letters(pattern: re.Pattern[Any]) -> str:
    """Return the letters of the flags of a pattern, whether they were arguments or inline.

    Raises:
        RegexError: the pattern is a pattern of bytes, or has a flag without a letter.
    """
    if isinstance(pattern.pattern, bytes):
        raise RegexError("the pattern is one of bytes; compile one of text")
    if pattern.flags & re.ASCII and not re.compile(pattern.pattern, pattern.flags & ~re.ASCII).flags & re.ASCII:
        raise RegexError("the flag re.ASCII is not known outside of the pattern; let the pattern begin with (?a)")
    return "".join(letter for letter, flag in _FLAGS.items() if pattern.flags & flag)


def with_flags(pattern: re.Pattern[str]) -> tuple[str, int]:
    """Write all flags of a pattern as an inline group at its start.

    Returns:
        The pattern as text, and the number of characters by which its body moved to the right.

    Raises:
        RegexError: as :func:`flag_letters`.
    """
    text, letters = pattern.pattern, flag_letters(pattern)
    group = _GLOBAL_FLAGS.match(text)
    letters = "".join(sorted({*letters, *(group[1] if group else "")}))
    flagged = (f"(?{letters})" if letters else "") + text[group.end() if group else 0 :]
    return flagged, len(flagged) - len(text)
