"""Compiled grammars, to which JSON Schemas, regular expressions and CFGs compile; matchers of them compute masks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from constrain import _core
from constrain.arguments import check_count, check_type
from constrain.engine.explain import Explanation, explain_text
from constrain.engine.special import Piece, pieces
from constrain.engine.vocabulary import Vocabulary

_MAX_UINT64 = 2**64 - 1


@dataclass(frozen=True)
class Limits:
    """Limits on the cost of a grammar; reaching one raises :class:`constrain.errors.ResourceLimit`.

    All are integers of at least 0; other values raise :class:`constrain.errors.ArgumentError`.

    Attributes:
        max_states: states of all rules of a grammar.
        max_stack_depth: depth of the parse stack.
        max_frames: parse threads of one text.
        max_work: frames created for one byte or one mask, over all parse threads; four times as many for a mask
            within a budget.
        max_nesting: depth of a schema, and of references and combinators in one node of it.
        max_cells: alternatives of a schema after normalisation.
        max_bytes: length of a schema, and of each document that it refers to, as JSON text.
        max_seconds: time to compile, and for each mask and token.
        max_memory: bytes of the states of a grammar, including states created in use; cached masks are not counted.
    """

    max_states: int = 500_000
    max_stack_depth: int = 10_000
    max_frames: int = 4_096
    max_work: int = 4_000_000
    max_nesting: int = 512
    max_cells: int = 20_000
    max_bytes: int = 16 << 20
    max_seconds: int = 10
    max_memory: int = 512 << 20

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_count(name, value, maximum=_MAX_UINT64)


@lru_cache(maxsize=16)  # nearly all grammars have the same limits
def _native(limits: Limits) -> _core.Limits:
    return _core.Limits(**vars(limits))


DEFAULT_LIMITS = Limits()
_DEFAULT_NATIVE = _native(DEFAULT_LIMITS)


def core_limits(limits: Limits) -> _core.Limits:
    """Check limits, and convert them to those of the native engine.

    Raises:
        ArgumentError: the argument is not a :class:`Limits`.
    """
    if limits is DEFAULT_LIMITS:
        return _DEFAULT_NATIVE
    check_type("limits", limits, Limits, "constrain.engine.Limits")
    return _native(limits)


class ReportEntry(NamedTuple):
    """A keyword of a schema, with its JSON pointer and a note.

    Attributes:
        document: URI of the document of the pointer, if it is one of the registry; for a schema in a Lark grammar, its
            position in the grammar.
    """

    pointer: str
    keyword: str
    note: str
    document: str = ""


@dataclass(frozen=True)
class Report:
    """Coverage of a schema: enforced, narrowed and ignored keywords.

    Attributes:
        enforced: keywords enforced exactly as specified.
        narrowed: keywords for which only a subset of the valid documents can be generated.
        ignored: keywords that are not enforced.
    """

    enforced: tuple[ReportEntry, ...] = ()
    narrowed: tuple[ReportEntry, ...] = ()
    ignored: tuple[ReportEntry, ...] = ()


class CompiledGrammar:
    """A language compiled for a vocabulary; immutable, and shared by threads and sequences."""

    def __init__(self, core: _core.CompiledGrammar, vocabulary: Vocabulary, is_json: bool = False) -> None:
        self.core = core
        self.vocabulary = vocabulary
        self._is_json = is_json

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledGrammar:
        return self

    def matcher(self) -> _core.Matcher:
        """Create a matcher at the start of a text: the parse state of one sequence, which computes its token masks.

        Its methods, ``accept`` and ``mask`` among them, are in ``csrc/engine/matcher/matcher.cpp``.
        """
        return _core.Matcher(self.core)

    def accepts(self, text: str | bytes, *, special_tokens: bool = False) -> bool:
        """Whether a whole text is in the language.

        Args:
            text: ``str``, or ``bytes`` in which a special token is written as its name between two bytes ``0xFF``.
            special_tokens: read names of special tokens in a ``str`` as these tokens.

        Raises:
            ArgumentError: ``text`` is neither ``str`` nor ``bytes``.
            ResourceLimit: parsing the text exceeds the limits of the grammar.
        """
        matcher = self.matcher()
        parts = [text] if isinstance(text, bytes) else [piece.content for piece in self._pieces(text, special_tokens)]
        return matcher.accept_bytes(b"".join(parts)) and matcher.is_accepting()

    def explain(self, text: str, *, special_tokens: bool = False) -> Explanation:
        """Find where a text leaves the language, and what was expected there.

        Args:
            text: the text.
            special_tokens: read names of special tokens in it as these tokens.

        Raises:
            ArgumentError: ``text`` is not a ``str``.
            ResourceLimit: parsing the text exceeds the limits of the grammar.
        """
        return explain_text(self.matcher(), self._pieces(text, special_tokens), self._is_json)

    def _pieces(self, text: str, special_tokens: bool) -> list[Piece]:
        check_type("text", text, str, "a str")
        return list(pieces(text, self.vocabulary.special_tokens if special_tokens else ()))

    @property
    def nbytes(self) -> int:
        """Approximate memory in bytes. It grows with use, since states and masks are computed on first use."""
        return self.core.bytes

    @property
    def counters(self) -> dict[str, int]:
        """Counters of the work for masks so far.

        ``masks_found`` counts hits of the mask cache, ``masks_built`` misses. ``frames_walked`` counts frames for which
        the trie of the vocabulary was walked, ``nodes_visited`` the trie nodes visited, ``rows_built`` the rows of
        the parse table that were built. ``states`` is the current number of states.
        """
        return self.core.counters

    @cached_property
    def report(self) -> Report:
        """Coverage of the JSON Schemas in the grammar."""
        return Report(*(tuple(ReportEntry(*entry) for entry in part) for part in self.core.report))
