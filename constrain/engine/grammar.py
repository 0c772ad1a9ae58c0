"""Compiled grammars, and the functions that compile JSON Schemas, regular expressions and choices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
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
IntegerPolicy = Literal["any", "plain"]
FormatPolicy = Literal["asserted", "dialect"]

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
        """Create a matcher at the start of a text."""
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


def compile_json_schema(
    schema: dict[str, Any] | bool,
    vocab: Vocabulary,
    *,
    whitespace: WhitespacePolicy = "bounded",
    property_order: PropertyOrder = "any",
    integers: IntegerPolicy = "any",
    lenient: bool = False,
    formats: FormatPolicy = "asserted",
    registry: Registry[Any] | None = None,
    sources: Mapping[str, str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> CompiledGrammar:
    """Compile a JSON Schema: the JSON documents that are valid under it.

    Every text of the grammar is a valid document. ``$schema`` selects the dialect: drafts 4, 6, 7, 2019-09 and 2020-12,
    and metaschemas of the registry; the default is draft 2020-12.

    Args:
        schema: the schema, as ``json.loads`` returns it.
        vocab: the vocabulary of the model.
        whitespace: ``"compact"`` allows none; ``"single"`` allows one space after ``,`` and ``:``; ``"bounded"``
            allows, after ``{ [ , :`` and before ``} ]``, two spaces or a line break with up to 40 spaces or tabs;
            ``"any"`` does not bound it; a number is exactly the layout of ``json.dumps(..., indent=number)``.
        property_order: ``"schema"`` keeps members in the order of ``properties``, with other keys after them.
        integers: ``"any"`` also allows ``1.0``, which is an integer in JSON Schema, but a float to most parsers;
            ``"plain"`` writes integers as ``json.dumps`` does.
        lenient: ignore keywords that cannot be enforced, and list them in ``report.ignored``, instead of raising.
        formats: ``"asserted"`` enforces ``format`` everywhere; ``"dialect"`` only where the dialect asserts it: up to
            draft 7, and under a metaschema of the registry whose ``$vocabulary`` says so.
        registry: other documents that the schema refers to, a :class:`referencing.Registry`. Those of the JSON Schema
            specification are always available. Nothing is fetched unless the registry itself does so.
        sources: texts by name. A string under ``"x-verbatim": {"source": name}`` is a substring of that text; with
            ``"whole_words": true``, it begins and ends at word boundaries.
        limits: limits on states, memory, nesting and time.

    Raises:
        SchemaError: the schema is malformed.
        UnsupportedSchema: a keyword cannot be enforced exactly.
        UnsatisfiableSchema: no document is valid.
        GrammarError: the policy of white space, properties, integers or formats is unknown, or a source is not a
            ``str``.
        ResourceLimit: a limit was reached.
        ArgumentError: another argument is of the wrong type.
    """
    if not isinstance(schema, (dict, bool)):
        raise SchemaError(
            f"a schema is a dict or a bool, not a {type(schema).__name__}; json.loads parses one from a text, and "
            "constrain.extract.Target.of(type).schema generates one from a type"
        )
    if isinstance(whitespace, bool):
        raise refused("whitespace", whitespace, "the name of a policy or a number of spaces", GrammarError)
    if property_order not in ("any", "schema"):
        raise GrammarError(f"there is no property order {property_order!r}; there are 'any' and 'schema'")
    if integers not in ("any", "plain"):
        raise GrammarError(f"there is no integer policy {integers!r}; there are 'any' and 'plain'")
    if formats not in ("asserted", "dialect"):
        raise GrammarError(f"there is no format policy {formats!r}; there are 'asserted' and 'dialect'")
    check_type("lenient", lenient, bool, "a bool")
    core = _core.compile_json_schema(
        schema,
        core_vocabulary(vocab),
        whitespace,
        property_order == "schema",
        integers == "plain",
        lenient,
        formats == "asserted",
        core_limits(limits),
        retriever(registry),
        {} if sources is None else _encoded(sources),
    )
    return CompiledGrammar(core, vocab, is_json=True)


def _encoded(sources: Mapping[str, str]) -> dict[str, bytes]:
    check_type("sources", sources, Mapping, "texts by name", GrammarError)
    for name, text in sources.items():
        check_text("the name of a source", name, GrammarError)
        check_text(f"sources[{name!r}]", text, GrammarError)
    return {name: text.encode() for name, text in sources.items()}


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
