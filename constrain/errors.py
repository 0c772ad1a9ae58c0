"""The exceptions of constrain. For a mistake of the user, the message says what is wrong, where, and what to do."""

from __future__ import annotations


class ConstrainError(Exception):
    """Base of every exception that constrain raises on purpose; can be sent to other processes."""

    def __reduce__(self) -> tuple[object, ...]:
        # By default an error is made again from its message, which those with arguments of their own are not.
        return _copied, (type(self), self.args, self.__dict__)


def _copied(kind: type[ConstrainError], args: tuple[object, ...], attributes: dict[str, object]) -> ConstrainError:
    # Python wants the __new__ of the base that determines the layout of the object.
    error: ConstrainError = (OSError if issubclass(kind, OSError) else Exception).__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


class ArgumentError(ConstrainError, ValueError, TypeError):
    """An argument is of the wrong type, or out of its bounds."""


class ModelError(ConstrainError, ValueError):
    """A model folder cannot be used: its config, weights, tokenizer or adapter is missing, damaged or inconsistent."""


class ConfigError(ModelError):
    """A ``config.json`` or another JSON file of a model folder is missing, malformed or has an unsupported value."""


class WeightsError(ModelError):
    """A safetensors file or one of its tensors is missing, truncated or of the wrong shape or type."""


class TokenizerError(ModelError):
    """A tokenizer is missing, malformed, or does not fit the model."""


class TokenizerNotFound(TokenizerError, FileNotFoundError):
    """A model folder has no ``tokenizer.json``."""


class VocabularyError(ConstrainError, ValueError):
    """The tokens of a vocabulary do not map to bytes exactly, so no constraint can be exact."""


class BitmaskError(ConstrainError, ValueError):
    """A buffer given for a bitmask has the wrong type, shape or width."""


class GrammarError(ConstrainError, ValueError):
    """A constraint does not compile."""


class SchemaError(GrammarError):
    """A JSON Schema does not compile.

    Attributes:
        pointer: JSON pointer to the schema node at fault (``""`` is the root).
        keyword: the keyword at fault, or ``None``.
        reason: the message without the position.
        document: URI of the document of the pointer, if it is one of the registry.
    """

    def __init__(self, reason: str, pointer: str = "", keyword: str | None = None, document: str = "") -> None:
        self.reason, self.pointer, self.keyword, self.document = reason, pointer, keyword, document
        at = f"{document}#{pointer}" + (f" ({keyword})" if keyword else "")
        super().__init__(reason if at == "#" else f"{at}: {reason}")


class UnsupportedSchema(SchemaError):
    """A JSON Schema is valid but has a condition that cannot be enforced exactly."""


class UnsatisfiableSchema(SchemaError):
    """No JSON document satisfies the schema."""


class RegexError(GrammarError):
    """A regular expression does not compile.

    Attributes:
        reason: the message without the position.
        offset: index of the character at fault in the pattern.
    """

    def __init__(self, reason: str, offset: int = 0) -> None:
        self.reason, self.offset = reason, offset
        super().__init__(f"the regular expression does not compile: {reason}, at offset {offset}")


class LarkError(GrammarError):
    """A Lark grammar does not compile.

    Attributes:
        reason: the message without the position.
        line, column: 1-based position in the grammar, or ``None`` if it has none.
        grammar: name of the grammar of the position, unless it is the main one.
    """

    def __init__(
        self, reason: str, line: int | None = None, column: int | None = None, grammar: str | None = None
    ) -> None:
        self.reason, self.line, self.column, self.grammar = reason, line, column, grammar
        place = [] if grammar is None else [f"grammar '{grammar}'"]
        place += [] if line is None else [f"line {line}, column {column}"]
        super().__init__(": ".join([", ".join(place), reason]) if place else reason)


class StructuralTagError(GrammarError):
    """A structural tag does not compile.

    Attributes:
        pointer: JSON pointer to the part at fault (``""`` is the whole).
        reason: the message without the position.
    """

    def __init__(self, reason: str, pointer: str = "") -> None:
        self.reason, self.pointer = reason, pointer
        super().__init__(f"#{pointer}: {reason}" if pointer else reason)


class ResourceLimit(GrammarError):
    """A limit on states, memory, nesting or time was reached.

    Attributes:
        kind: name of the limit: a field of :class:`constrain.engine.Limits`, or one that cannot be changed.
        limit: its value.
        where: the operation that reached it.
        pointer: JSON pointer to the node that was being compiled; ``None`` outside of JSON Schemas.
        document: URI of the document of the pointer, if it is one of the registry.
    """

    def __init__(self, kind: str, limit: int, where: str = "", pointer: str | None = None, document: str = "") -> None:
        self.kind, self.limit, self.where, self.pointer, self.document = kind, limit, where, pointer, document
        at = "" if pointer is None else f"{document}#{pointer}: "
        super().__init__(f"{at}limit {kind}={limit} reached" + (f" {where}" if where else ""))


class BudgetError(ConstrainError, ValueError):
    """A budget of tokens does not suffice to complete a text.

    Attributes:
        budget: remaining tokens; for a matcher or a mask, the end-of-sequence token included.
        needed: number of tokens that suffice, counted in the same way.
    """

    def __init__(self, budget: int, needed: int) -> None:
        self.budget, self.needed = budget, needed
        tokens = f"{budget} token{'s' * (budget != 1)}"
        super().__init__(f"a budget of {tokens} is too small: the shortest text takes {needed}")


class FilterError(ConstrainError, RuntimeError):
    """A filter raised an exception, or returned an invalid result.

    Attributes:
        reason: the message without names and position.
        filters: names of the filters at fault: of the arguments that they were made for, or else of their classes.
        tail: the end of the output before the error.
        state: description of what the filters expected next, if they have one.
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
    """The filters of a sequence together allow no token."""


class PluginError(ConstrainError, RuntimeError):
    """A plugin could not be loaded, or no plugin has a filter of the given name."""


class AliasError(ConstrainError, RuntimeError):
    """The alias of another package cannot be installed, because that package is installed or imported."""


class CacheError(ConstrainError, ValueError):
    """A KV cache has an invalid shape, has no memory yet, or does not match an operation."""


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
    """Bans and constraints together leave no token."""


class DocumentError(ConstrainError, ValueError):
    """A document cannot be read.

    Attributes:
        source: path or name of the document.
        reason: the message without the source.
    """

    def __init__(self, source: str, reason: str) -> None:
        self.source, self.reason = source, reason
        super().__init__(f"{source}: {reason}")


class ExtractionError(ConstrainError, RuntimeError):
    """A record could not be extracted from a document.

    Attributes:
        reason: the message.
        text: the output so far, possibly incomplete.
        finish_reason: why generation stopped, ``"stop"`` or ``"length"``; ``None`` if it did not start.
    """

    def __init__(self, reason: str, text: str = "", finish_reason: str | None = None) -> None:
        self.reason, self.text, self.finish_reason = reason, text, finish_reason
        super().__init__(reason)


class RunError(ConstrainError, RuntimeError):
    """A run cannot start or go on: its output cannot be read or written, or error follows error."""


class OutputInUse(RunError):
    """The output of a run is being written by another one.

    Attributes:
        output: path of the output.
        holder: description of the other process: its id, host, and since when it runs.
    """

    def __init__(self, output: str, holder: str) -> None:
        self.output, self.holder = output, holder
        super().__init__(f"{output} is being written by {holder}: wait until it has ended, or write another file")
