"""Grammars of SQL and of Python calls: every text of them is read by sqlite3 and by Python."""

from __future__ import annotations

import ast
import inspect
import random
import sqlite3
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import TypeAdapter

from constrain.engine import CompiledGrammar, Vocabulary, allocate_bitmask, compile_lark, lark_of_calls, lark_of_sql
from constrain.engine.bitmask import unpacked
from constrain.errors import ArgumentError, GrammarError

TABLES = {
    "customers": {"id": "INTEGER", "name": "TEXT", "city": "VARCHAR(20)"},
    "orders": {"id": "INTEGER", "customer": "INTEGER", "total": "REAL", "order": "TEXT"},
    "line items": {"order_id": "INTEGER", "it's": "TEXT"},
    "log": {"line": "TEXT"},
}
JOINS = [("orders.customer", "customers.id"), ("line items.order_id", "orders.id")]


def walk(grammar: CompiledGrammar, rng: random.Random) -> str:
    """A random text: some tokens from the masks, then the shortest way to an end."""
    matcher, bits = grammar.matcher(), allocate_bitmask(1, grammar.vocabulary.size)
    text = b""
    for _ in range(rng.randint(0, 120)):
        matcher.fill_bitmask(bits)
        allowed = [int(token) for token in unpacked(bits) if grammar.vocabulary.token_bytes(int(token))]
        if not allowed:
            break
        completion = matcher.completion()
        wanted = [token for token in allowed if completion.startswith(grammar.vocabulary.token_bytes(token))]
        token = rng.choice(wanted if wanted and rng.random() < 0.3 else allowed)
        assert matcher.accept(token)
        text += grammar.vocabulary.token_bytes(token)
    return (text + matcher.completion()).decode()


@pytest.fixture(scope="module")
def database() -> sqlite3.Connection:
    found = sqlite3.connect(":memory:")
    for table, columns in TABLES.items():
        listed = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
        found.execute(f'CREATE TABLE "{table}" ({listed})')
    return found


@pytest.fixture(scope="module")
def sql(byte_vocab: Vocabulary) -> CompiledGrammar:
    return compile_lark(lark_of_sql(TABLES, JOINS), byte_vocab)


@pytest.mark.parametrize(
    ("query", "accepted"),
    [
        ("SELECT name FROM customers", True),
        (
            "SELECT DISTINCT customers.city, LENGTH(name) FROM customers WHERE name LIKE 'A%' ORDER BY id LIMIT 5",
            True,
        ),
        ('SELECT COUNT(*), AVG(total) FROM orders WHERE total BETWEEN 1 AND 20.5 AND "order" IS NOT NULL', True),
        (
            "SELECT customer, SUM(total) FROM orders GROUP BY customer HAVING COUNT(*) > 2 ORDER BY SUM(total)",
            True,
        ),
        (
            "SELECT customers.name, SUM(orders.total) FROM orders "
            "LEFT JOIN customers ON orders.customer = customers.id "
            "WHERE NOT (customers.city IN ('Oslo', 'it''s') OR orders.total >= 3) "
            "GROUP BY customers.name LIMIT 3 OFFSET 6",
            True,
        ),
        (
            "SELECT * FROM customers JOIN orders ON orders.customer = customers.id "
            'JOIN "line items" ON "line items".order_id = orders.id',
            True,
        ),
        ("SELECT nam FROM customers", False),
        ("SELECT total FROM customers", False),
        ("SELECT name FROM customers WHERE name > 3", False),
        ("SELECT SUM(name) FROM customers", False),
        ("SELECT name FROM orders JOIN customers ON orders.customer = customers.id", False),
        ("SELECT city, COUNT(*) FROM customers GROUP BY name", False),
        ("SELECT customers.name FROM customers JOIN log ON log.line = customers.name", False),
        ("DROP TABLE customers", False),
        ("SELECT name FROM customers; DROP TABLE customers", False),
    ],
)
def test_queries(query: str, accepted: bool, sql: CompiledGrammar, database: sqlite3.Connection) -> None:
    assert sql.accepts(query) == accepted, sql.explain(query)
    if accepted:
        database.execute(f"EXPLAIN {query}")


@pytest.mark.seeds(60)
def test_random_queries_are_read_by_sqlite(seed: int, sql: CompiledGrammar, database: sqlite3.Connection) -> None:
    query = walk(sql, random.Random(seed))
    assert sql.accepts(query), query
    database.execute(f"EXPLAIN {query}")


@pytest.mark.parametrize(
    ("tables", "joins", "reason"),
    [
        ({}, [], "at least one table"),
        ({"a": {}}, [], "at least one column"),
        ({"a": {"b": "BLOB"}}, [], "column a.b has the type 'BLOB'"),
        ({"a": {"b": "INT"}}, [("a.b", "c.d")], "no column 'c.d' to join on"),
        ({"a": {"b": "INT"}}, ["a.b"], r'a join is a pair of columns such as \("orders.customer", .*, not \'a.b\''),
    ],
)
def test_mistakes_in_tables(tables: Any, joins: Any, reason: str) -> None:
    with pytest.raises(GrammarError, match=reason):
        lark_of_sql(tables, joins)


@pytest.mark.parametrize(
    ("tables", "most", "reason"),
    [
        ("orders", 3, "tables must be a dict of tables, not 'orders'"),
        ({"a": ["b"]}, 3, r"tables\['a'\] must be a dict of the types of its columns"),
        ({"a": {"b": "INT"}}, 0, "max_tables must be a whole number of at least 1"),
    ],
)
def test_tables_are_described_by_dicts(tables: Any, most: int, reason: str) -> None:
    with pytest.raises(ArgumentError, match=reason):
        lark_of_sql(tables, max_tables=most)


def weather(
    city: str, /, days: int = 1, *, unit: Literal["C", "it's"] = "C", near: list[tuple[str, float]]
) -> None: ...


def now() -> None: ...


def store(
    key: int | None,
    flags: dict[str, bool],
    place: tuple[int, ...] = (),
    one: Annotated[tuple[int], "size"] = (0,),
    some: set[int] | None = None,
) -> None: ...


FUNCTIONS: dict[str, Callable[..., Any]] = {each.__name__: each for each in (weather, now, store)}


@pytest.fixture(scope="module")
def calls(byte_vocab: Vocabulary) -> CompiledGrammar:
    return compile_lark(lark_of_calls(FUNCTIONS.values()), byte_vocab)


def check_call(text: str) -> None:
    """Check that a call binds to its signature with arguments of the right types."""
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    function = FUNCTIONS[call.func.id]
    positional = [ast.literal_eval(each) for each in call.args]
    named = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    bound = inspect.signature(function).bind(*positional, **named)
    hints = inspect.get_annotations(function, eval_str=True)
    for name, value in bound.arguments.items():
        TypeAdapter(hints[name]).validate_python(value, strict=True)


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("now()", True),
        ('weather("Oslo", near=[])', True),
        ('weather("a\\n\\"b", 3, unit="it\'s", near=[("x", 1.5), ("y", -0.0)])', True),
        ('weather("Oslo", days=-3, near=[])', True),
        ("store(None, {})", True),
        ('store(1, {"a": True, "b": False}, (1,), (2,), {3, 4})', True),
        ("store(flags={}, key=1)", False),
        ("store(key=1, flags={}, place=(1, 2), some=None)", True),
        ("store(1, {}, some={5})", True),
        ("now(1)", False),
        ("later()", False),
        ('weather(city="Oslo", near=[])', False),
        ('weather("Oslo")', False),
        ('weather("Oslo", "C", near=[])', False),
        ('weather("Oslo", 01, near=[])', False),
        ('weather("Oslo", 1, "C", near=[])', False),
        ('weather("Oslo", unit="F", near=[])', False),
        ("store(1, {}, (), (2))", False),
        ("store(1, {}, some={})", False),
        ("store(1, flags={}, (1,))", False),
        ("store(1.0, {})", False),
    ],
)
def test_calls(text: str, accepted: bool, calls: CompiledGrammar) -> None:
    assert calls.accepts(text) == accepted, calls.explain(text)
    if accepted:
        check_call(text)


@pytest.mark.seeds(60)
def test_random_calls_bind_to_their_signatures(seed: int, calls: CompiledGrammar) -> None:
    text = walk(calls, random.Random(seed))
    assert calls.accepts(text), text
    check_call(text)


def untyped(a) -> None: ...  # type: ignore[no-untyped-def]


def variadic(*a: int) -> None: ...


def unknown(a: list[bytes]) -> None: ...


def undefined(a: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("functions", "reason"),
    [
        ([], "at least one function"),
        ([now, now], "a name of its own"),
        ([untyped], "parameter 'a' of untyped has no type"),
        ([variadic], "any number of arguments"),
        ([unknown], "bytes.* no literals"),
        ([lambda: None], "has no name"),
        ([undefined], "the signature of undefined cannot be read: name 'Missing' is not defined"),
        ([dict], "the signature of dict cannot be read: no signature found"),
        (now, "functions must be a list of functions, not <function now"),
        (None, "functions must be a list of functions, not None"),
    ],
)
def test_mistakes_in_functions(functions: Any, reason: str) -> None:
    with pytest.raises(GrammarError, match=reason):
        lark_of_calls(functions)
