"""A conformance kit for grammar back ends: what a server or a generation loop may rely on.

Derive a class from :class:`Backend` that drives the back end as its server does, and call :func:`check_backend`, or
parametrize a test over :data:`CHECKS`. The reference is the engine itself.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from constrain.arguments import refused
from constrain.engine import CompiledGrammar, Matcher, Vocabulary, allocate_bitmask
from constrain.engine.bitmask import unpacked
from constrain.integrations.serving import ConstraintKind, compile_constraint

Tokens: TypeAlias = npt.NDArray[np.intp]

#: Constraints of all kinds that every back end is checked with.
CONSTRAINTS: tuple[tuple[ConstraintKind, str], ...] = (
    (
        "json",
        '{"type": "object", "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"enum": '
        '["a", "b\u00e9"]}}, "n": {"type": "number"}}, "required": ["name", "n"], "additionalProperties": false}',
    ),
    ("json_object", ""),
    ("regex", r"(yes|no), [A-Z][a-z]{2,9}( [0-9]+)?"),
    ("choice", '["red", "green", "reddish", "gr\u00fcn"]'),
    ("grammar", 'start: sum\nsum: item ("+" item)*\nitem: /[0-9]+/ | "(" sum ")"'),
    ("grammar", 'root ::= "a" [b-d]* ("!" | "?"){1,3}'),
    (
        "structural_tag",
        '{"structures": [{"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"}], "triggers": ["<f>"]}',
    ),
)

#: Constraints that every back end has to refuse.
BAD_CONSTRAINTS: tuple[tuple[ConstraintKind, str], ...] = (
    ("json", '{"type": "strin"}'),
    ("json", '{"type": "object"'),
    ("json", '{"type": "integer", "minimum": 3, "maximum": 2}'),
    ("regex", "(a"),
    ("regex", r"(a)\1"),
    ("choice", "[]"),
    ("grammar", "start: missing"),
    ("grammar", 'root ::= "a" ['),
    ("structural_tag", '{"format": {"type": "mystery"}}'),
)

_SEEDS = 4
_MAX_STEPS = 40


class Output(ABC):
    """One output, driven as a server does.

    The methods that are not abstract are for abilities that a back end names in :attr:`Backend.abilities`.
    """

    @abstractmethod
    def allowed(self) -> Collection[int] | Tokens:
        """The tokens that may come next, those that end the output included, in any order."""

    @abstractmethod
    def accept(self, token: int) -> bool:
        """Append a token; false if it is refused. A back end that is only asked for masks returns true."""

    def is_terminated(self) -> bool:
        """Whether the output has ended (ability ``"end"``)."""
        raise NotImplementedError

    def rollback(self, count: int) -> None:
        """Remove the last tokens (ability ``"rollback"``)."""
        raise NotImplementedError

    def valid_prefix(self, tokens: list[int]) -> list[int]:
        """The first of these tokens, as far as they may follow (ability ``"drafts"``)."""
        raise NotImplementedError

    def forced_tokens(self) -> list[int]:
        """The next tokens, as far as there is no choice (ability ``"forced"``)."""
        raise NotImplementedError

    def copy(self) -> Output:
        """A copy that advances independently (ability ``"copy"``)."""
        raise NotImplementedError


class Backend(ABC):
    """A back end under test.

    Attributes:
        vocabulary: the vocabulary that it works with.
        kinds: the kinds of constraints that it takes.
        abilities: what it can do beyond masks: ``"refuse"`` excluded tokens, ``"end"``, ``"budget"``, ``"rollback"``,
            ``"drafts"``, ``"forced"`` and ``"copy"``.
    """

    vocabulary: Vocabulary
    kinds: Collection[ConstraintKind] = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")
    abilities: Collection[str] = ()

    @abstractmethod
    def start(self, kind: ConstraintKind, text: str, max_tokens: int | None = None) -> Output:
        """Start an output.

        Args:
            kind, text: the constraint; see :func:`~constrain.integrations.serving.compile_constraint`.
            max_tokens: tokens that the output may have, the one that ends it included (ability ``"budget"``).

        Raises:
            Exception: the constraint is refused; any exception that says why.
        """

    def reference(self, kind: ConstraintKind, text: str) -> CompiledGrammar:
        """The language that the back end should allow for a constraint; to be replaced if it has other settings."""
        return compile_constraint(kind, text, self.vocabulary)

    def constraints(self) -> Iterator[tuple[ConstraintKind, str]]:
        """The constraints that the back end can be checked with."""
        return ((kind, text) for kind, text in CONSTRAINTS if kind in self.kinds)


class _Walk:
    """An output of a back end, and the matcher of the engine that it is compared with."""

    def __init__(self, backend: Backend, kind: ConstraintKind, text: str, max_tokens: int | None = None) -> None:
        self.output = backend.start(kind, text, max_tokens)
        self.matcher = backend.reference(kind, text).matcher()
        self.what = f"{kind} {text!r}"
        self.tokens: list[int] = []
        self._eos_ids = backend.vocabulary.eos_token_ids
        self._size = backend.vocabulary.size
        self._max_tokens = max_tokens

    def is_over(self) -> bool:
        return bool(self.tokens) and self.tokens[-1] in self._eos_ids

    def expected(self) -> Tokens:
        left = None if self._max_tokens is None else self._max_tokens - len(self.tokens)
        return _allowed(self.matcher, self._size, left)

    def compare(self) -> Tokens:
        """Check the mask, and return its tokens."""
        expected, found = self.expected(), np.sort(np.fromiter(self.output.allowed(), dtype=np.intp))
        if np.array_equal(expected, found):
            return expected
        wrong, missing = np.setdiff1d(found, expected)[:5].tolist(), np.setdiff1d(expected, found)[:5].tolist()
        self.require(not wrong, f"tokens {wrong} are allowed, but lead out of the language")
        self.require(not missing, f"tokens {missing} are excluded, but belong to the language")
        return expected

    def accept(self, token: int) -> None:
        self.require(self.output.accept(token), f"token {token} is refused, although the mask allows it")
        self.matcher.accept(token)
        self.tokens.append(token)

    def go(self, rng: random.Random, steps: int) -> None:
        """Append random tokens, at most ``steps``."""
        for _ in range(steps):
            if self.is_over():
                return
            self.accept(int(rng.choice(self.expected())))

    def require(self, condition: bool, reason: str) -> None:
        _require(condition, f"{self.what} after the tokens {self.tokens}: {reason}")


def check_masks(backend: Backend) -> None:
    """At every step of random outputs, the tokens of the language are allowed, and no others."""
    for seed, (kind, text) in _cases(backend):
        rng, walk = random.Random(seed), _Walk(backend, kind, text)
        for _ in range(_MAX_STEPS):
            tokens = walk.compare()
            walk.accept(int(rng.choice(tokens)))
            if walk.is_over():
                break


def check_independence(backend: Backend) -> None:
    """Outputs under one constraint, advanced in turns, do not disturb one another."""
    for kind, text in backend.constraints():
        rng = random.Random(0)
        walks = [_Walk(backend, kind, text) for _ in range(3)]
        for _ in range(_MAX_STEPS):
            for walk in walks:
                if not walk.is_over():
                    walk.accept(int(rng.choice(walk.compare())))


def check_refused_constraints(backend: Backend) -> None:
    """Constraints that cannot be enforced raise an error with a message, and others still work afterwards."""
    for kind, text in BAD_CONSTRAINTS:
        if kind in backend.kinds:
            try:
                backend.start(kind, text)
            except Exception as error:
                _require(bool(str(error)), f"{kind} {text!r} is refused without a reason")
            else:
                _require(False, f"{kind} {text!r} is not refused")
    check_independence(backend)


def check_refused_tokens(backend: Backend) -> None:
    """An excluded token is refused, and the output goes on as if it had not been there."""
    for seed, (kind, text) in _cases(backend):
        rng, walk = random.Random(seed), _Walk(backend, kind, text)
        walk.go(rng, 3)
        if walk.is_over():
            continue
        excluded = np.setdiff1d(np.arange(backend.vocabulary.size), walk.expected()).tolist()
        for token in rng.sample(excluded, min(5, len(excluded))):
            walk.require(not walk.output.accept(token), f"token {token} is accepted, although the mask excludes it")
        walk.compare()


def check_end(backend: Backend) -> None:
    """An output ends with the end-of-sequence token, not before."""
    for seed, (kind, text) in _cases(backend):
        walk = _Walk(backend, kind, text)
        rng = random.Random(seed)
        for _ in range(_MAX_STEPS):
            walk.require(walk.output.is_terminated() == walk.is_over(), "is_terminated is wrong")
            walk.go(rng, 1)


def check_budget(backend: Backend) -> None:
    """Outputs are complete within their budget, whatever the model prefers: here blanks, digits and long strings."""
    for kind, text in backend.constraints():
        needed = backend.reference(kind, text).matcher().min_tokens()
        for more in (0, 1, 7):
            walk = _Walk(backend, kind, text, needed + more)
            for _ in range(needed + more):
                if not walk.is_over():
                    walk.accept(max(walk.compare().tolist(), key=lambda token: _lure(backend.vocabulary, token)))
            walk.require(walk.is_over(), f"not complete within {needed + more} tokens")


def check_rollback(backend: Backend) -> None:
    """An output that was rolled back goes on as if the tokens had not been there, over its end, too."""
    for seed, (kind, text) in _cases(backend):
        rng, walk = random.Random(seed), _Walk(backend, kind, text)
        for _ in range(6):
            walk.go(rng, rng.randrange(1, 12))
            count = rng.randrange(len(walk.tokens) + 1)
            walk.output.rollback(count)
            walk.matcher.rollback(count)
            del walk.tokens[len(walk.tokens) - count :]
            if not walk.is_over():
                walk.compare()


def check_drafts(backend: Backend) -> None:
    """Of a draft, exactly the valid beginning is accepted, and the output does not change."""
    for seed, (kind, text) in _cases(backend):
        rng, walk = random.Random(seed), _Walk(backend, kind, text)
        walk.go(rng, rng.randrange(4))
        if walk.is_over():
            continue
        draft = _random_tokens(walk.matcher.clone(), backend.vocabulary, rng)
        excluded = np.setdiff1d(np.arange(backend.vocabulary.size), walk.expected()).tolist()
        walk.require(walk.output.valid_prefix(list(draft)) == draft, f"of the valid draft {draft}, a part is refused")
        if excluded:
            found = walk.output.valid_prefix([rng.choice(excluded), *draft])
            walk.require(found == [], "a draft is accepted that begins with an excluded token")
        walk.compare()


def check_forced_tokens(backend: Backend) -> None:
    """Forced tokens are allowed one after another, and the output does not change until they are accepted."""
    found = 0
    for seed, (kind, text) in _cases(backend):
        rng, walk = random.Random(seed), _Walk(backend, kind, text)
        for _ in range(_MAX_STEPS):
            forced = walk.output.forced_tokens()
            found += len(forced)
            for token in forced:
                walk.require(token in walk.compare(), f"token {token} is forced, but not allowed")
                walk.accept(token)
            walk.go(rng, 1)
            if walk.is_over():
                break
    _require(found > 0, "no token was forced in any output")


def check_copies(backend: Backend) -> None:
    """A copy and its original advance independently."""
    for seed, (kind, text) in _cases(backend):
        rng, walk = random.Random(seed), _Walk(backend, kind, text)
        walk.go(rng, 3)
        if walk.is_over():
            continue
        expected, copy = walk.expected(), walk.output.copy()
        walk.go(rng, 3)
        walk.require(set(copy.allowed()) == set(expected.tolist()), "a copy changes with its original")


Check: TypeAlias = Callable[[Backend], None]

#: The checks, each with the ability that it needs; ``""`` for those that hold for every back end.
CHECKS: tuple[tuple[Check, str], ...] = (
    (check_masks, ""),
    (check_independence, ""),
    (check_refused_constraints, ""),
    (check_refused_tokens, "refuse"),
    (check_end, "end"),
    (check_budget, "budget"),
    (check_rollback, "rollback"),
    (check_drafts, "drafts"),
    (check_forced_tokens, "forced"),
    (check_copies, "copy"),
)


_ABILITIES = tuple(ability for _, ability in CHECKS if ability)


def check_backend(backend: Backend) -> None:
    """Run all checks that a back end has the abilities for.

    Raises:
        AssertionError: it does not conform; the message has the constraint and the tokens.
        ArgumentError: it has an ability that is not known, and for which there is no check.
    """
    for ability in backend.abilities:
        if ability not in _ABILITIES:
            raise refused("an ability", ability, f"one of {', '.join(_ABILITIES)}")
    for check, ability in CHECKS:
        if not ability or ability in backend.abilities:
            check(backend)


def _cases(backend: Backend) -> Iterator[tuple[int, tuple[ConstraintKind, str]]]:
    return ((seed, constraint) for constraint in backend.constraints() for seed in range(_SEEDS))


def _allowed(matcher: Matcher, size: int, budget: int | None = None) -> Tokens:
    bits = allocate_bitmask(1, size)
    matcher.fill_bitmask(bits, 0, budget)
    return unpacked(bits)


def _random_tokens(matcher: Matcher, vocabulary: Vocabulary, rng: random.Random) -> list[int]:
    """Return a few random tokens that may follow, without one that ends the text."""
    tokens: list[int] = []
    for _ in range(5):
        options = np.setdiff1d(_allowed(matcher, vocabulary.size), vocabulary.eos_token_ids)
        if not options.size:
            break
        tokens.append(int(rng.choice(options)))
        matcher.accept(tokens[-1])
    return tokens


def _lure(vocabulary: Vocabulary, token: int) -> tuple[int, int]:
    text = vocabulary.token_bytes(token)
    return text.isspace() + text.isdigit() + text.isalpha(), len(text)


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise AssertionError(reason)
