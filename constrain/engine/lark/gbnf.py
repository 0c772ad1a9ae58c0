"""Translation of GBNF, the grammars of llama.cpp, and of the EBNF of SGLang and vLLM, into Lark's notation.

All three write rules as ``name ::= expression``, begin with the rule ``root``, and have literals, character classes,
groups, repetition and comments in common.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import lark

from constrain.arguments import check_text
from constrain.errors import LarkError

_GRAMMAR = r"""
start: rule+
rule: NAME "::=" choice
choice: sequence ("|" sequence)*
sequence: item*
item: atom repeat*
repeat: SIGN | "{" INT "}" -> exactly | "{" INT "," INT? "}" -> between
atom: STRING | CLASS | DOT | REFERENCE | "(" choice ")"
NAME.2: /[a-zA-Z][\w-]*(?=\s*::=)/
REFERENCE: /[a-zA-Z][\w-]*/
STRING: /"(?:[^"\\\n]|\\.)*"/
CLASS: /\[(?:[^\]\\\n]|\\.)*\]/
DOT: "."
SIGN: /[*+?]/
INT: /[0-9]+/
COMMENT: /#[^\n]*/
%ignore COMMENT
%ignore /\s+/
"""


#: Begins a rule of GBNF, and nothing in Lark's notation, where rules have a colon.
_RULE = re.compile(r"^\s*[a-zA-Z][\w-]*\s*::=", re.MULTILINE)


def as_lark(text: str) -> str:
    """Return a grammar in Lark's notation; one in GBNF, which has rules with ``::=``, is translated.

    Raises:
        LarkError: it is in GBNF, and malformed.
    """
    check_text("a grammar", text, LarkError)
    return lark_of_gbnf(text) if _RULE.search(text) else text


def lark_of_gbnf(text: str) -> str:
    """Translate a grammar.

    Raises:
        LarkError: it is malformed or nested too deeply, has something that only some servers know, or no rule ``root``.
    """
    try:
        return _translated(text)
    except RecursionError as error:
        raise LarkError("the grammar is nested too deeply") from error


def _translated(text: str) -> str:
    try:
        tree: Any = _parser().parse(text)
    except lark.exceptions.UnexpectedInput as error:
        context = error.get_context(text).strip() if error.pos_in_stream is not None else ""
        raise LarkError(f"not GBNF here: {context!r}", error.line, error.column) from error
    _check_names(tree)
    try:
        rules: list[str] = list(_Translation().transform(tree).children)
    except lark.exceptions.VisitError as error:
        raise error.orig_exc from error
    return "\n".join([f"start: {_rule_name('root')}", *rules])


def _check_names(tree: Any) -> None:
    """Raise unless all rules that are referred to are there, once, and so is ``root``."""
    names: set[str] = set()
    for name in (rule.children[0] for rule in tree.children):
        if str(name) in names:
            raise _mistake(f"there is a rule {str(name)!r} already", name)
        names.add(str(name))
    if "root" not in names:
        raise LarkError("a grammar in GBNF begins with the rule 'root', which is missing")
    for name in tree.scan_values(lambda token: token.type == "REFERENCE"):
        if str(name) not in names:
            raise _mistake(f"there is no rule {str(name)!r}; the grammar has {', '.join(sorted(names))}", name)


def _mistake(reason: str, token: lark.Token) -> LarkError:
    return LarkError(reason, token.line, token.column)


@cache
def _parser() -> lark.Lark:
    return lark.Lark(_GRAMMAR, parser="lalr")


def _rule_name(name: str) -> str:
    """Return a name that Lark knows as one of a rule; different names stay different."""
    return "r_" + "".join(char if char in "abcdefghijklmnopqrstuvwxyz0123456789" else f"_{ord(char)}_" for char in name)


@lark.v_args(inline=True)
class _Translation(lark.Transformer[Any, Any]):
    def rule(self, name: str, choice: str) -> str:
        return f"{_rule_name(name)}: {choice}"

    def choice(self, *options: str) -> str:
        return " | ".join(options)

    def sequence(self, *items: str) -> str:
        return " ".join(items)

    def item(self, atom: str, *repeats: str) -> str:
        for repeat in repeats:
            atom = f"({atom}){repeat}" if "%" not in repeat else repeat.replace("%", f"({atom})")
        return atom

    def repeat(self, sign: str) -> str:
        return str(sign)

    def exactly(self, count: str) -> str:
        return f"~{count}"

    def between(self, low: lark.Token, high: lark.Token | None = None) -> str:
        if high is not None and int(high) < int(low):
            raise _mistake(f"the bounds {low} and {high} are in the wrong order", low)
        return f"~{low}..{high}" if high is not None else f"%~{low} %*"

    def atom(self, content: Any) -> str:
        if not isinstance(content, lark.Token):
            return f"({content})"
        if content.type == "REFERENCE":
            return _rule_name(content)
        if content.type == "DOT":
            return "/(?s:.)/"
        try:
            body = content[1:-1]
            return _literal(_unescaped(body)) if content.type == "STRING" else _character_class(body)
        except (ValueError, re.error) as error:
            raise _mistake(f"{str(content)!r} cannot be used: {error}", content) from error


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else "()"


def _character_class(content: str) -> str:
    negated = content.startswith("^")
    body = _unescaped(content.removeprefix("^"), keep_dash=True)
    # Of the characters that are special in a class, GBNF has only the dash, which stays one where it is not escaped.
    escaped = re.sub(r"[\\\]\[^/&~|]", r"\\\g<0>", body).replace("\n", r"\n").replace("\r", r"\r").replace("\0", r"\-")
    pattern = f"[{'^' if negated else ''}{escaped}]"
    re.compile(pattern)
    return f"/{pattern}/"


_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)


def _unescaped(text: str, keep_dash: bool = False) -> str:
    """Return a text without escapes; with ``keep_dash``, an escaped dash becomes U+0000."""

    def character(match: re.Match[str]) -> str:
        code = match[1] or match[2] or match[3]
        if code:
            number = int(code, 16)
            if number > 0x10FFFF or 0xD800 <= number < 0xE000:
                raise ValueError(f"{match[0]} is no character")
            return chr(number)
        return "\0" if keep_dash and match[4] == "-" else _ESCAPES.get(match[4], match[4])

    return _ESCAPE.sub(character, text)
