"""Compilation of JSON Schema to a grammar, whose matcher computes the token mask of a document.

In C++, ``csrc/engine/schema/`` makes rules of keywords (``keyword_table.cpp`` lists them, ``keywords.cpp`` reads them);
masks are computed by ``Matcher::mask`` (``csrc/engine/matcher/matcher.cpp``) and ``MaskBuilder::mask``
(``csrc/engine/masks/mask_builder.cpp``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from constrain import _core
from constrain.arguments import check_text, check_type, refused, type_with_article
from constrain.engine.compiled_grammar import DEFAULT_LIMITS, CompiledGrammar, Limits, core_limits
from constrain.engine.references import retriever
from constrain.engine.vocabulary import Vocabulary, core_vocabulary
from constrain.errors import GrammarError, SchemaError

if TYPE_CHECKING:
    from referencing import Registry

WhitespacePolicy: TypeAlias = Literal["compact", "single", "bounded", "any"] | int
PropertyOrder = Literal["any", "schema"]
IntegerPolicy = Literal["any", "plain"]
FormatPolicy = Literal["asserted", "dialect"]


@dataclass(frozen=True)
class JsonLayout:
    """How JSON documents are written; the attributes are arguments of :func:`compile_json_schema`.

    Raises:
        GrammarError: a policy is unknown.
    """

    whitespace: WhitespacePolicy = "bounded"
    property_order: PropertyOrder = "any"
    integers: IntegerPolicy = "any"

    def __post_init__(self) -> None:
        if isinstance(self.whitespace, bool):
            wanted = "the name of a policy or a number of spaces"
            raise refused("whitespace", self.whitespace, wanted, GrammarError)
        if self.property_order not in ("any", "schema"):
            raise GrammarError(f"there is no property order {self.property_order!r}; there are 'any' and 'schema'")
        if self.integers not in ("any", "plain"):
            raise GrammarError(f"there is no integer policy {self.integers!r}; there are 'any' and 'plain'")

    @property
    def policies(self) -> tuple[WhitespacePolicy, bool, bool]:
        """The arguments of the engine: white space, whether members are in order, whether integers are plain."""
        return self.whitespace, self.property_order == "schema", self.integers == "plain"


#: As most models write JSON, and ``json.dumps``: with members in the order of the schema.
DUMPS_LAYOUT = JsonLayout("single", "schema", "plain")


@dataclass(frozen=True)
class LaidOutSchema:
    """A JSON Schema whose documents are written in a certain way.

    Attributes:
        schema: the schema, as ``json.loads`` returns it.
        layout: how its documents are written.
    """

    schema: dict[str, Any] | bool
    layout: JsonLayout


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
    _check(schema, formats)
    layout = JsonLayout(whitespace, property_order, integers)
    check_type("lenient", lenient, bool, "a bool")
    core = _core.compile_json_schema(
        schema,
        core_vocabulary(vocab),
        *layout.policies,
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


def _check(schema: Any, formats: str) -> None:
    """Raise an error if the schema is no schema, or the policy of formats is unknown."""
    if not isinstance(schema, (dict, bool)):
        raise SchemaError(
            f"a schema is a dict or a bool, not {type_with_article(schema)}; json.loads parses one from a text, and "
            "constrain.extract.Target.of(type).schema generates one from a type"
        )
    if formats not in ("asserted", "dialect"):
        raise GrammarError(f"there is no format policy {formats!r}; there are 'asserted' and 'dialect'")
