"""The exceptions of constrain: every mistake of a user ends in one of these, which says what, where and what to do."""

from __future__ import annotations


class ConstrainError(Exception):
    """Base of every exception that constrain raises on purpose."""


class ArgumentError(ConstrainError, ValueError, TypeError):
    """An argument is of the wrong type, or out of its bounds."""


class ModelError(ConstrainError, ValueError):
    """A model folder cannot be used: its config, weights, tokenizer or adapter is missing, damaged or inconsistent."""


class ConfigError(ModelError):
    """A ``config.json`` or another JSON file of a model folder is missing, malformed or asks for something unknown."""


class WeightsError(ModelError):
    """A safetensors file or one of its tensors is missing, truncated or of the wrong shape or type."""


class TokenizerError(ModelError):
    """A tokenizer is missing, malformed, or does not fit the model."""


class TokenizerNotFound(TokenizerError, FileNotFoundError):
    """A model folder has no ``tokenizer.json``."""


class VocabularyError(ConstrainError, ValueError):
    """A vocabulary has no faithful byte view of its tokens, so that no constraint over text can be exact."""


class BitmaskError(ConstrainError, ValueError):
    """A buffer given for a bitmask has the wrong type, shape or width."""


class GrammarError(ConstrainError, ValueError):
    """A constraint does not compile."""


class SchemaError(GrammarError):
    """A JSON Schema does not compile.

    Attributes:
        pointer: JSON pointer to the schema node at fault (``""`` is the root).
        keyword: the keyword at fault, or ``None``.
        reason: what is wrong, without the place.
        document: URI of the document that the pointer is in, where it is one of the registry.
    """

    def __init__(self, reason: str, pointer: str = "", keyword: str | None = None, document: str = "") -> None:
        self.reason, self.pointer, self.keyword, self.document = reason, pointer, keyword, document
        at = f"{document}#{pointer}" + (f" ({keyword})" if keyword else "")
        super().__init__(f"{at}: {reason}")


class UnsupportedSchema(SchemaError):
    """A JSON Schema is valid but asks for something that cannot be enforced exactly."""


class UnsatisfiableSchema(SchemaError):
    """No JSON document satisfies the schema."""


class RegexError(GrammarError):
    """A regular expression does not compile.

    Attributes:
        reason: what is wrong, without the place.
        offset: index of the character at fault in the pattern.
    """

    def __init__(self, reason: str, offset: int = 0) -> None:
        self.reason, self.offset = reason, offset
        super().__init__(f"at offset {offset}: {reason}")


class LarkError(GrammarError):
    """A Lark grammar does not compile.

    Attributes:
        reason: what is wrong, without the place.
        line, column: 1-based place in the grammar, or ``None`` where it has none.
        grammar: name of the grammar that the place is in, where it is one that others refer to.
    """

    def __init__(
        self, reason: str, line: int | None = None, column: int | None = None, grammar: str | None = None
    ) -> None:
        self.reason, self.line, self.column, self.grammar = reason, line, column, grammar
        place = [] if grammar is None else [f"grammar '{grammar}'"]
        place += [] if line is None else [f"line {line}, column {column}"]
        super().__init__(": ".join([", ".join(place), reason]) if place else reason)


class ResourceLimit(GrammarError):
    """A limit on states, memory, nesting or time was reached.

    Attributes:
        kind: name of the limit: a field of :class:`constrain.engine.Limits`, or one that cannot be changed.
        limit: its value.
        where: what was being built when it was reached.
        pointer: of a JSON Schema, the node that was being compiled; ``None`` elsewhere.
        document: URI of the document that the pointer is in, where it is one of the registry.
    """

    def __init__(self, kind: str, limit: int, where: str = "", pointer: str | None = None, document: str = "") -> None:
        self.kind, self.limit, self.where, self.pointer, self.document = kind, limit, where, pointer, document
        at = "" if pointer is None else f"{document}#{pointer}: "
        super().__init__(f"{at}limit {kind}={limit} reached" + (f" {where}" if where else ""))


class BudgetError(ConstrainError, ValueError):
    """A budget of tokens does not suffice to complete a text.

    Attributes:
        budget: tokens that are left; for a matcher or a mask, the end-of-sequence token included.
        needed: tokens that suffice, counted in the same way.
    """

    def __init__(self, budget: int, needed: int) -> None:
        self.budget, self.needed = budget, needed
        super().__init__(f"a budget of {budget} tokens does not suffice to complete the text: {needed} do")


class FilterError(ConstrainError, RuntimeError):
    """A filter raised, or returned something that is not a filter's result.

    Attributes:
        reason: what is wrong.
        filters: class names of the filters at fault.
        tail: end of the text up to there.
        state: what they expected there, of filters that can tell.
    """

    def __init__(
        self, reason: str, filters: tuple[str, ...] = (), tail: str | None = None, state: str | None = None
    ) -> None:
        self.reason, self.filters, self.tail, self.state = reason, filters, tail, state
        who = f"{' and '.join(filters)}: " if filters else ""
        where = [f"after {tail!r}"] if tail is not None else []
        where += [f"expected: {state}"] if state else []
        super().__init__(who + reason + (f" ({', '.join(where)})" if where else ""))


class DeadEnd(FilterError):
    """The filters of a sequence, taken together, allow no token."""


class PluginError(ConstrainError, RuntimeError):
    """A plugin could not be loaded, or no plugin offers the name asked for."""


class AliasError(ConstrainError, RuntimeError):
    """The name of another package cannot be taken, because that package is there."""


class CacheError(ConstrainError, ValueError):
    """A cache cannot have the shape asked for, has no memory yet, or does not fit what is done with it."""


class BenchmarkError(ConstrainError, RuntimeError):
    """A benchmark cannot be run: there are no cases, or an engine cannot be set up."""


class GenerationError(ConstrainError, RuntimeError):
    """A generation request cannot be carried out."""


class GenerationTimeout(GenerationError, TimeoutError):
    """A request did not end in time, and was cancelled.

    Attributes:
        seconds: the time that it was given.
        text: what the model had written until then.
    """

    def __init__(self, seconds: float, text: str = "") -> None:
        self.seconds, self.text = seconds, text
        super().__init__(f"the request did not end within {seconds:g} seconds, and was cancelled")


class NoTokenLeft(GenerationError):
    """Bans and constraints, taken together, leave no token to go on with."""


class ExtractionError(ConstrainError, RuntimeError):
    """A record could not be extracted from a document.

    Attributes:
        reason: what went wrong.
        text: what the model wrote until then, possibly cut off in the middle.
        finish_reason: why it stopped, ``"stop"`` or ``"length"``; ``None`` where it did not begin.
    """

    def __init__(self, reason: str, text: str = "", finish_reason: str | None = None) -> None:
        self.reason, self.text, self.finish_reason = reason, text, finish_reason
        super().__init__(reason)
