"""Translation of the rules of a Lark grammar into steps of a program."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from lark import Tree
from lark.grammar import Symbol
from lark.lexer import Pattern
from lark.utils import get_regexp_width

from constrain.engine.json_schema import JsonLayout
from constrain.engine.lark.context import looks_outside
from constrain.engine.lark.inline import InlineSchema, Insert, Reference, Substring, marker
from constrain.engine.lark.json_string import escaped, escaped_pattern
from constrain.engine.lark.program import Program
from constrain.engine.lark.source import Node, Source, lark_errors
from constrain.engine.special import why_missing
from constrain.engine.vocabulary import Vocabulary
from constrain.errors import GrammarError, LarkError, RegexError, ResourceLimit, SchemaError

_MAX_INSTANCES = 10_000
"""Maximum number of template instances; stops a template that calls itself with ever new arguments."""

_UNBOUNDED = 2**32 - 1

#: Of the documents of schemas that come without a layout.
DEFAULT_LAYOUT = JsonLayout(integers="plain")


class _Instance(NamedTuple):
    """A rule, or a template with arguments."""

    name: str
    arguments: tuple[int, ...]


@dataclass(frozen=True)
class SpecialTokens:
    """Special tokens that grammars may name.

    Attributes:
        vocab: the vocabulary.
        declared: names of special tokens, by the names of the terminals that are declared for them.
    """

    vocab: Vocabulary
    declared: Mapping[str, str]


class Lowering:
    """Adds rules of a grammar to a program, with the rules that they call.

    Args:
        source: the grammar.
        program: the program.
        scope: number of the grammar in the program.
        name: name of the grammar, unless it is the main one.
        scope_of: returns the number of a grammar that it refers to.
        tokens: the special tokens that it may name.
        layout: how the documents of its schemas are written.
        in_string: whether its texts are written as in a JSON string.
    """

    def __init__(
        self,
        source: Source,
        program: Program,
        scope: int,
        name: str | None,
        scope_of: Callable[[Reference], int],
        tokens: SpecialTokens,
        layout: JsonLayout,
        in_string: bool = False,
    ) -> None:
        self.program = program
        self._source = source
        self._scope = scope
        self._name = name
        self._scope_of = scope_of
        self._tokens = tokens
        self._layout = layout
        self._in_string = in_string
        self._terminals: dict[str, int] = {}
        self._inserts: dict[str, int] = {}
        self._rules: dict[_Instance, int] = {}
        self._names: dict[int, str] = {}
        self._pending: list[_Instance] = []
        for name in source.ignored:
            pattern = self._pattern(name)
            self._add("ignore", pattern, (pattern.raw or "%ignore") if name.startswith("__") else name)

    def symbol_of_rule(self, name: str) -> int:
        """Add a rule without parameters, and return its symbol.

        Raises:
            LarkError: there is no such rule, or it uses a construct that cannot be enforced.
        """
        rule = self._source.rules.get(name)
        if rule is None or rule.parameters:
            known = ", ".join(sorted(n for n, r in self._source.rules.items() if not r.parameters)) or "none"
            raise LarkError(f"there is no rule '{name}' to start with; the grammar has: {known}")
        symbol = self._instance(_Instance(name, ()))
        with lark_errors(self._source.text):
            while self._pending:
                self._define(self._pending.pop())
        return symbol

    def _define(self, instance: _Instance) -> None:
        rule = self._source.rules[instance.name]
        bindings = dict(zip(rule.parameters, instance.arguments, strict=True))
        self.program.call("define", self._rules[instance], self._expression(rule.tree, bindings))

    def _expression(self, tree: Node, bindings: dict[str, int]) -> int:
        """Translate a tree, children first: without recursion, since trees may be deep."""
        done: dict[int, int] = {}
        for node in tree.iter_subtrees():
            parts = [done[id(child)] for child in node.children if isinstance(child, Tree) and id(child) in done]
            if node.data == "expansions":
                done[id(node)] = self.program.call("choice", parts)
            elif node.data == "expansion":
                done[id(node)] = self.program.call("sequence", parts)
            elif node.data == "maybe":
                done[id(node)] = self.program.call("repeat", parts[0], 0, 1)
            elif node.data == "expr":
                done[id(node)] = self.program.call("repeat", parts[0], *self._bounds(node))
            elif node.data == "alias":
                done[id(node)] = parts[0]
            elif node.data == "value":
                done[id(node)] = self.program.call("symbol", self._symbol(node, bindings))
        return done[id(tree)]

    def _bounds(self, node: Node) -> tuple[int, int]:
        operator, *numbers = (str(child) for child in node.children[1:])
        if operator != "~":
            return {"?": (0, 1), "*": (0, _UNBOUNDED), "+": (1, _UNBOUNDED)}[operator]
        low, high = int(numbers[0]), int(numbers[-1])
        if not 0 <= low <= high < _UNBOUNDED:
            raise self._source.error(f"bad repetition ~{'..'.join(numbers)}", "~" + numbers[0], "~ " + numbers[0], "~")
        return low, high

    def _symbol(self, value: Node, bindings: dict[str, int]) -> int:
        (child,) = value.children
        if not isinstance(child, Tree):
            return self._named(child, bindings)
        if child.data == "template_usage":
            return self._template(child, bindings)
        pattern: Any = child.children[0]
        return self._terminal(pattern, pattern.raw or pattern.to_regexp())

    def _named(self, symbol: Symbol, bindings: dict[str, int]) -> int:
        name = str(symbol.name)
        if symbol.is_term and (insert := self._source.insert(name)):
            return self._insert(insert)
        if symbol.is_term:
            declared = self._source.terminals[name] is None and name in self._tokens.declared
            return self._declared(name) if declared else self._terminal(self._pattern(name), name)
        return bindings[name] if name in bindings else self._instance(_Instance(name, ()))

    def _template(self, usage: Node, bindings: dict[str, int]) -> int:
        template: Any = usage.children[0]
        name = str(template.name)
        if name in bindings:
            name = self._names[bindings[name]]
        return self._instance(_Instance(name, tuple(self._symbol(value, bindings) for value in usage.children[1:])))

    def _instance(self, instance: _Instance) -> int:
        if instance not in self._rules:
            if len(self._rules) >= _MAX_INSTANCES and instance.arguments:
                raise self._source.error(f"template '{instance.name}' calls itself without end", instance.name)
            symbol = self._rules[instance] = self.program.call("nonterminal")
            self._names[symbol] = instance.name
            # A template that is passed as an argument has no body until it is instantiated.
            if len(self._source.rules[instance.name].parameters) == len(instance.arguments):
                self._pending.append(instance)
        return self._rules[instance]

    def _pattern(self, name: str) -> Pattern:
        pattern = self._source.terminals[name]
        if pattern is None:
            reason = f"terminal '{name}' is declared but has no pattern; give it one, or a special token in its place"
            raise self._source.error(reason, name)
        return pattern

    def _terminal(self, pattern: Pattern, name: str) -> int:
        expression = pattern.to_regexp()
        if expression not in self._terminals:
            self._terminals[expression] = self._add("terminal", pattern, name)
        return self._terminals[expression]

    def _insert(self, insert: Insert) -> int:
        if insert.shown not in self._inserts:
            self._inserts[insert.shown] = self._new_insert(insert)
        return self._inserts[insert.shown]

    def _new_insert(self, insert: Insert) -> Any:
        if isinstance(insert, Substring):
            chunks = [escaped(each) for each in insert.chunks] if self._in_string else insert.chunks
            return self.program.call("substring", chunks, insert.shown, self._scope)
        if self._in_string:
            shown = insert.shown.split(" ")[0]
            raise LarkError(f"{shown} cannot be a part of the text of a JSON string", insert.line, insert.column)
        if isinstance(insert, InlineSchema):
            return self._schema(insert)
        if isinstance(insert, Reference):
            return self._text(insert)
        if insert.name not in self._tokens.vocab.special_tokens:
            raise LarkError(why_missing(insert.name, self._tokens.vocab), insert.line, insert.column)
        return self._special(insert.name, insert.shown)

    def _declared(self, name: str) -> int:
        if name not in self._inserts:
            token = self._tokens.declared[name]
            if token not in self._tokens.vocab.special_tokens:
                raise self._source.error(why_missing(token, self._tokens.vocab), name)
            self._inserts[name] = self._special(token, name)
        return self._inserts[name]

    def _special(self, token: str, name: str) -> Any:
        return self.program.call("special", token, name, self._scope)

    def _text(self, reference: Reference) -> Any:
        return self.program.call("text", self._scope_of(reference), self._scope, reference.shown)

    def _schema(self, inline: InlineSchema) -> Any:
        shown = inline.shown if self._name is None else f"{inline.shown} of @{self._name}"
        try:
            return self.program.call("json_schema", inline.schema, *self._layout.policies, shown, self._scope)
        except SchemaError as error:
            raise LarkError(f"the schema of %json cannot be used: {error}", inline.line, inline.column) from error

    def _add(self, kind: str, pattern: Pattern, name: str) -> Any:
        """Check a terminal, and add it to the program as a terminal or as ignored text."""
        expression = pattern.to_regexp()
        if insert := next((one for stem, one in self._source.inserts.items() if marker(stem) in expression), None):
            what = insert.shown.split(" ")[0]
            raise LarkError(
                f"{what} belongs in rules, not in terminals or ignored text",
                insert.line,
                insert.column,
            )
        try:
            re.compile(expression)
            outside = looks_outside(expression, ahead=kind == "ignore")
            empty = get_regexp_width(expression)[0] == 0
            if not outside and not empty:
                expression = escaped_pattern(expression) if self._in_string else expression
                return self.program.call(kind, expression, name, self._scope)
        except (re.error, ImportError, RecursionError, OverflowError) as error:
            reason = f"bad regular expression: {error}"
        except RegexError as error:
            reason = f"{error.reason}, at offset {error.offset} of the regular expression {_shown(expression)}"
        except ResourceLimit:
            raise
        except GrammarError as error:
            reason = str(error)
        else:
            reason = "it can match the empty text" if empty else f"it has {outside}"
        raise self._source.error(f"terminal '{name}' cannot be used: {reason}", name)


def _shown(expression: str) -> str:
    return expression if len(expression) <= 80 else expression[:77] + "..."
