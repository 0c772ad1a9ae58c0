"""Compiled grammars, and the functions that make them from regular expressions, choices and JSON Schemas."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from constrain import _core
from constrain.arguments import check_count, check_text, check_type, refused, texts_of
from constrain.engine.explain import Explanation, explain_text
from constrain.engine.patterns import with_flags
from constrain.engine.references import retriever
from constrain.engine.special import Piece, pieces
from constrain.engine.vocabulary import Vocabulary, core_vocabulary
from constrain.errors import GrammarError, RegexError, SchemaError

if TYPE_CHECKING:
    from referencing import Registry

WhitespacePolicy: TypeAlias = Literal["compact", "single", "bounded", "any"] | int
PropertyOrder = Literal["any", "schema"]

#: The largest number that the engine can hold.
_MOST = 2**64 - 1


@dataclass(frozen=True)
class Limits:
    """Bounds on what a grammar may cost; reaching one raises :class:`constrain.errors.ResourceLimit`.

    All are whole numbers of at least 0; others raise :class:`constrain.errors.ArgumentError`.

    Attributes:
        max_states: states of all rules of a grammar.
        max_stack_depth: rules nested in one another at one point of a text.
        max_frames: simultaneous readings of one text.
        max_work: frames made for one byte or one mask, over all readings.
        max_nesting: levels of a schema, and references and combinators nested in one node of it.
        max_cells: alternatives of a schema after normalisation.
        max_bytes: length of a schema, and of each document that it refers to, as JSON text.
        max_seconds: time to compile, and for each mask and token.
        max_memory: bytes of the states of a grammar, also of those that are made in use; masks are kept beside them.
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
            check_count(name, value, most=_MOST)

    def core(self) -> _core.Limits:
        """The same limits, for the engine."""
        return _core.Limits(**vars(self))


def core_limits(limits: Limits) -> _core.Limits:
    """Limits, for the engine.

    Raises:
        ArgumentError: they are no limits.
    """
    check_type("limits", limits, Limits, "constrain.engine.Limits")
    return limits.core()


class ReportEntry(NamedTuple):
    """One keyword of a schema: where it stands, its name, and what is to be said of it.

    Attributes:
        document: URI of the document that the pointer is in, where it is one of the registry; the place of a schema in
            a Lark grammar.
    """

    pointer: str
    keyword: str
    note: str
    document: str = ""


@dataclass(frozen=True)
class Report:
    """What a compiled schema enforces.

    Attributes:
        enforced: keywords that hold exactly as the specification says, and are not narrowed.
        narrowed: places where only a part of the valid documents can be generated.
        ignored: keywords that are not enforced at all.
    """

    enforced: tuple[ReportEntry, ...] = ()
    narrowed: tuple[ReportEntry, ...] = ()
    ignored: tuple[ReportEntry, ...] = ()


class CompiledGrammar:
    """An immutable language over a vocabulary; cheap to share between threads and sequences."""

    def __init__(self, core: _core.CompiledGrammar, vocabulary: Vocabulary, is_json: bool = False) -> None:
        self.core = core
        self.vocabulary = vocabulary
        self._is_json = is_json

    def matcher(self) -> _core.Matcher:
        """A matcher at the start of a text."""
        return _core.Matcher(self.core)

    def accepts(self, text: str | bytes, *, special_tokens: bool = False) -> bool:
        """Whether a whole text is in the language.

        Args:
            text: as text, or as bytes, in which a special token is its name between two bytes ``0xFF``.
            special_tokens: names of special tokens in a text of type ``str`` stand for these.

        Raises:
            ArgumentError: it is no text.
            ResourceLimit: following the text exceeds the limits of the grammar.
        """
        matcher = self.matcher()
        parts = [text] if isinstance(text, bytes) else [piece.content for piece in self._pieces(text, special_tokens)]
        return matcher.accept_bytes(b"".join(parts)) and matcher.is_accepting()

    def explain(self, text: str, *, special_tokens: bool = False) -> Explanation:
        """Where a text leaves the language, and what was expected there; or that it is accepted.

        Args:
            text: the text.
            special_tokens: names of special tokens in it stand for these.

        Raises:
            ArgumentError: it is no text.
            ResourceLimit: following the text exceeds the limits of the grammar.
        """
        return explain_text(self.matcher(), self._pieces(text, special_tokens), self._is_json)

    def _pieces(self, text: str, special_tokens: bool) -> list[Piece]:
        check_type("text", text, str, "a str")
        return list(pieces(text, self.vocabulary.special_tokens if special_tokens else ()))

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes, about. Grows with use, since states and masks are made when first needed."""
        return self.core.bytes

    @property
    def counters(self) -> dict[str, int]:
        """How much was done for masks so far, and how much of it could be taken from caches.

        ``masks_found`` and ``masks_built`` count masks that were kept and computed; ``frames_walked``,
        ``nodes_visited`` and ``rows_built`` the work behind them: frames whose tokens were looked up in the trie of the
        vocabulary, its nodes, and rows of transitions. ``states`` is their number by now.
        """
        return self.core.counters

    @cached_property
    def report(self) -> Report:
        """What is enforced of JSON Schemas, where it is narrowed, and what is ignored."""
        return Report(*(tuple(ReportEntry(*entry) for entry in part) for part in self.core.report))


def compile_json_schema(
    schema: dict[str, Any] | bool,
    vocab: Vocabulary,
    *,
    whitespace: WhitespacePolicy = "bounded",
    property_order: PropertyOrder = "any",
    lenient: bool = False,
    registry: Registry[Any] | None = None,
    sources: Mapping[str, str] | None = None,
    limits: Limits = Limits(),
) -> CompiledGrammar:
    """The JSON documents that are valid under a JSON Schema.

    Every text of the grammar is a valid document. ``$schema`` selects the dialect: drafts 4, 6, 7, 2019-09 and 2020-12,
    and metaschemas of the registry; without it the schema is read as draft 2020-12.

    Args:
        schema: the schema, as ``json.loads`` gives it.
        vocab: the vocabulary of the model.
        whitespace: ``"compact"`` has none; ``"single"`` allows one space after ``,`` and ``:``; ``"bounded"`` allows,
            after ``{ [ , :`` and before ``} ]``, two spaces or a line break with up to 40 spaces or tabs; ``"any"``
            does not bound it; a number is exactly the layout of ``json.dumps(..., indent=number)``.
        property_order: ``"schema"`` keeps members in the order of ``properties``, with other keys after them.
        lenient: leave out keywords that cannot be enforced, and list them in ``report.ignored``, instead of raising.
        registry: other documents that the schema refers to, a :class:`referencing.Registry`. Those of the JSON Schema
            specification are always there. Nothing is fetched unless the registry itself does so.
        sources: texts by name. A string under ``"x-verbatim": {"source": name}`` occurs in that text, word for word;
            with ``"whole_words": true`` in it, it begins and ends where words do.
        limits: bounds on states, memory, nesting and time.

    Raises:
        SchemaError: the schema is malformed.
        UnsupportedSchema: a keyword cannot be enforced exactly.
        UnsatisfiableSchema: nothing is valid.
        GrammarError: there is no such whitespace policy or property order, or a source is no text.
        ResourceLimit: a limit was reached.
        ArgumentError: another argument is of the wrong type.
    """
    if not isinstance(schema, (dict, bool)):
        raise SchemaError(
            f"a schema is a dict or a bool, not a {type(schema).__name__}; json.loads reads one from a text, and "
            "constrain.extract.Target.of(type).schema makes one of a type"
        )
    if isinstance(whitespace, bool):
        raise refused("whitespace", whitespace, "the name of a policy or a number of spaces", GrammarError)
    if property_order not in ("any", "schema"):
        raise GrammarError(f"there is no property order {property_order!r}; there are 'any' and 'schema'")
    check_type("lenient", lenient, bool, "a bool")
    check_type("sources", sources, (Mapping, type(None)), "texts by name", GrammarError)
    for name, text in (sources or {}).items():
        check_text("the name of a source", name, GrammarError)
        check_text(f"sources[{name!r}]", text, GrammarError)
    core = _core.compile_json_schema(
        schema,
        core_vocabulary(vocab),
        whitespace,
        property_order == "schema",
        lenient,
        core_limits(limits),
        retriever(registry),
        {name: text.encode() for name, text in (sources or {}).items()},
    )
    return CompiledGrammar(core, vocab, is_json=True)


def compile_regex(pattern: str | re.Pattern[str], vocab: Vocabulary, *, limits: Limits = Limits()) -> CompiledGrammar:
    """The texts that a regular expression, read as Python's :func:`re.fullmatch` reads it, matches.

    Args:
        pattern: as text, or compiled, with its flags.
        vocab: the vocabulary of the model.
        limits: bounds on states, memory and time.

    Raises:
        RegexError: the pattern is malformed, or uses what is not regular, such as backreferences.
        ResourceLimit: a limit was reached.
        ArgumentError: another argument is of the wrong type.
    """
    text, moved = with_flags(pattern) if isinstance(pattern, re.Pattern) else (pattern, 0)
    check_text("the pattern", text, RegexError)
    try:
        core = _core.compile_regex(text, core_vocabulary(vocab), core_limits(limits))
    except RegexError as error:
        raise RegexError(error.reason, max(0, error.offset - moved)) from error
    return CompiledGrammar(core, vocab)


def compile_choices(choices: Iterable[str], vocab: Vocabulary, *, limits: Limits = Limits()) -> CompiledGrammar:
    """Exactly the given texts.

    Raises:
        GrammarError: there are none, or they are no texts.
        ResourceLimit: a limit was reached.
        ArgumentError: another argument is of the wrong type.
    """
    texts = texts_of("choices", choices, GrammarError)
    if not texts:
        raise GrammarError("at least one choice is needed")
    return CompiledGrammar(_core.compile_choices(texts, core_vocabulary(vocab), core_limits(limits)), vocab)
