"""A sandbox for Jinja programs that are not trusted: beyond that of Jinja, it bounds time and the sizes of texts.

Jinja's sandbox keeps a program from Python's internals. It does not keep it from loops in loops, or from texts that
double until the memory is full.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sized
from contextvars import ContextVar
from typing import Any, TypeVar

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_TEXT = 1 << 24
"""Most characters, or elements, of a text or list that a program makes."""
MAX_SECONDS = 30.0
"""Most seconds that a program runs; real ones take milliseconds."""

_MAX_ARGUMENT = 1 << 20
_MAX_POWER_BITS = 1 << 12
#: Characters that an element of a list counts as when it is written.
_ELEMENT = 16
_CONCATENATE, _LOOP = "concatenated texts", "items of a loop"
#: Filters and methods that make a text of values that are none, which may hold one list many times over.
_WRITERS = frozenset(
    {"center", "format", "indent", "join", "lower", "pprint", "replace", "string", "tojson", "trim", "upper"}
)
_REFUSED = frozenset({"format_map", "to_bytes", "translate"})

_ends: ContextVar[float] = ContextVar("ends", default=float("inf"))
T = TypeVar("T")


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with bounds; programs are to be run by :meth:`run`, which starts the clock."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=_writable, **options)
        self.filters |= {_CONCATENATE: _concatenated, _LOOP: _timed}
        self.filters = {name: bounded(name, each) for name, each in self.filters.items()}
        del self.globals["lipsum"]

    @staticmethod
    def run(program: Callable[[], T]) -> T:
        """Call a function that renders, and stop it after ``MAX_SECONDS``.

        Raises:
            SecurityError: it ran longer, or made something too large.
        """
        token = _ends.set(time.monotonic() + MAX_SECONDS)
        try:
            return program()
        finally:
            _ends.reset(token)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Transformer().visit(super()._parse(source, name, filename))
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _check_size(_size_of_operation(operator, left, right), operator)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, called: Any, *args: Any, **options: Any) -> Any:
        method = getattr(called, "__wrapped__", called)  # of str.format, which Jinja wraps
        owner = getattr(method, "__self__", None)
        if isinstance(owner, (str, bytes, int)):
            _check_call(method.__name__, (owner, *args), options)
        _check_time()
        return super().call(context, called, *args, **options)


class _Transformer(NodeTransformer):
    """Has the items of loops, and texts that are joined by ``~``, go through filters, where they are checked."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 (a name of Jinja)
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, _LOOP, [], [], None, None, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 (a name of Jinja)
        self.generic_visit(node)
        parts = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(parts, _CONCATENATE, [], [], None, None, lineno=node.lineno)


def _concatenated(parts: list[Any]) -> str:
    _writable(parts)
    texts = [str(part) for part in parts]
    _check_size(sum(map(len, texts)), "~")
    return "".join(texts)


@pass_context  # so that loops over constants are not unrolled when a program is compiled
def _timed(context: Context, items: Iterable[T]) -> Iterable[T]:
    return _TimedItems(items) if isinstance(items, Sized) else _each(items)


class _TimedItems:
    """Items of a loop, the number of which is known."""

    def __init__(self, items: Any) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Any:
        return _each(self._items)


def _each(items: Iterable[T]) -> Iterable[T]:
    for item in items:
        _check_time()
        yield item


def bounded(name: str, called: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that checks its arguments first."""
    passed = getattr(called, "jinja_pass_arg", None) is not None

    @functools.wraps(called)
    def checked(*args: Any, **options: Any) -> Any:
        _check_time()
        _check_call(name, args[passed:], options)
        return called(*args, **options)

    return checked


def _check_time() -> None:
    if time.monotonic() > _ends.get():
        raise SecurityError(f"it runs longer than {MAX_SECONDS:g} seconds")


def _check_size(size: int, what: str) -> None:
    if size > MAX_TEXT:
        raise SecurityError(f"{what} makes something larger than a prompt may be")


def _writable(value: T) -> T:
    """Return a value that is to be written as text, after a check of the size of that."""
    size, left = 0, [value] if isinstance(value, (list, tuple, Mapping)) else []
    while left:
        each: Any = left.pop()
        if isinstance(each, Mapping):
            left += [*each.keys(), *each.values()]
        elif isinstance(each, (list, tuple)):
            left += each
        size += _ELEMENT + (len(each) if isinstance(each, str) else 0)
        _check_size(size, "a text of lists")
    return value


def _check_call(name: str, args: tuple[Any, ...], options: Mapping[str, Any]) -> None:
    """Check the arguments of a filter, or of a method of a text or number, which is the first of them."""
    given = [*args[1:], *options.values()]
    if name in _REFUSED:
        raise SecurityError(f"{name} is not supported")
    if any(isinstance(each, int) and each > _MAX_ARGUMENT for each in given):
        raise SecurityError(f"an argument of {name} is larger than {_MAX_ARGUMENT}")
    if name in _WRITERS:
        _writable([*args, *options.values()])
    _check_size(_size_of_call(name, args[0], given) if args else 0, name)


def _size_of_call(name: str, text: Any, given: list[Any]) -> int:
    """Estimate the size of the result of a filter or method whose result may be far larger than its arguments."""
    if name == "join":
        return _size_of_join(text, given[0]) if given else 0
    if name == "tojson":
        return _largest(given) * (1 << 20)
    if not isinstance(text, str):
        return 0
    if name == "replace":
        return len(text) + text.count(str(given[0])) * len(str(given[1])) if len(given) > 1 else 0
    if name == "format":
        return _size_of_format(text, given)
    repeated = {"expandtabs": "\t", "indent": "\n"}.get(name)
    return len(text) + text.count(repeated) * _largest(given) if repeated else 0


def _size_of_join(first: Any, second: Any) -> int:
    """Estimate the size of items that are joined: the filter has them before the separator, the method after it."""
    items, separator = (second, first) if isinstance(second, (list, tuple)) else (first, second)
    if not isinstance(items, (str, list, tuple)):
        return 0
    return sum(len(each) for each in items if isinstance(each, str)) + len(items) * _largest([separator])


def _size_of_operation(operator: str, left: Any, right: Any) -> int:
    """Estimate the size of a sum, product or text with values, or bits of a power; else 0."""
    if operator == "**":
        bits = left.bit_length() * right if isinstance(left, int) and isinstance(right, int) else 0
        return bits * (MAX_TEXT // _MAX_POWER_BITS)
    if operator == "%":
        _writable(right)
        values = [*right.values()] if isinstance(right, Mapping) else [*right] if isinstance(right, tuple) else [right]
        return _size_of_format(left, values) if isinstance(left, str) else 0
    if operator == "+":
        return len(left) + len(right) if isinstance(left, Sized) and isinstance(right, Sized) else 0
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() + right.bit_length()
        return bits * (MAX_TEXT // _MAX_POWER_BITS)
    count, sequence = (left, right) if isinstance(left, int) else (right, left)
    return count * len(sequence) if isinstance(count, int) and isinstance(sequence, Sized) else 0


def _size_of_format(text: str, values: list[Any]) -> int:
    """Estimate the size of a text with values in it: widths are numbers in the text, or values."""
    places = text.count("%") + text.count("{")
    widths = sum(int(digits[:9]) for digits in re.findall(r"\d+", text))
    return len(text) + widths + places * _largest(values)


def _largest(values: Iterable[Any]) -> int:
    """Return the largest of numbers and of the lengths of texts."""
    sizes = (each if isinstance(each, int) else len(each) if isinstance(each, Sized) else 0 for each in values)
    return max(sizes, default=0)
