"""Grammars of SQL queries that know the tables of a database, their columns and the types of these."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from constrain.arguments import check_count, check_type
from constrain.engine.grammars.sql_names import quoted
from constrain.errors import GrammarError

_NUMBERS = "int bigint smallint tinyint mediumint real double float numeric decimal bool"
_TEXTS = "text char varchar nvarchar string date time"

#: Kinds of columns, by the words with which databases begin their types.
_KINDS = {**dict.fromkeys(_NUMBERS.split(), "number"), **dict.fromkeys(_TEXTS.split(), "text")}

_TERMINALS = r"""
NUMBER: /-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,6})?/
STRING: /'([^'\x00]|'')*'/
COUNT: /[1-9][0-9]{0,5}/
NUMBERS: NUMBER (", " NUMBER)*
STRINGS: STRING (", " STRING)*
comparison: " = " | " <> " | " < " | " <= " | " > " | " >= "
direction: " ASC" | " DESC"
limit: " LIMIT " COUNT (" OFFSET " COUNT)?
"""


@dataclass(frozen=True)
class _Column:
    """A column of a query.

    Attributes:
        names: the ways to write it.
        kind: ``"number"`` or ``"text"``.
    """

    names: tuple[str, ...]
    kind: str


def lark_of_sql(
    tables: Mapping[str, Mapping[str, str]], joins: Iterable[tuple[str, str]] = (), max_tables: int = 3
) -> str:
    """Return the Lark grammar of queries of some tables.

    Every text of it is a query that a database with these tables accepts: it names only columns of the tables that it
    reads, compares numbers with numbers and texts with texts, and groups by the column that it selects. Queries are
    ``SELECT [DISTINCT] columns FROM table [JOIN ...] [WHERE ...] [GROUP BY ... [HAVING ...]] [ORDER BY ...] [LIMIT
    ...]``, with the functions ``COUNT``, ``SUM``, ``AVG``, ``MIN``, ``MAX``, ``ABS``, ``ROUND``, ``UPPER``, ``LOWER``
    and ``LENGTH``. Keywords are in capitals, with single spaces.

    Args:
        tables: of each table, the types of its columns by name: SQL's words, such as ``INTEGER``, ``REAL``, ``TEXT``
            and ``VARCHAR(20)``.
        joins: pairs of columns, as ``"table.column"``, on which tables may be joined.
        max_tables: most tables of one query.

    Raises:
        GrammarError: there is no table, or one has no column; a type is not known; a join is not a pair of columns.
        ArgumentError: ``tables`` is not such a dict, or ``max_tables`` is not a number of at least 1.
    """
    check_count("max_tables", max_tables, 1)
    check_type("tables", tables, Mapping, "a dict of tables")
    for table, of_table in tables.items():
        check_type(f"tables[{table!r}]", of_table, Mapping, "a dict of the types of its columns")
    columns = {
        (table, name): _kind(table, name, kind) for table, of_table in tables.items() for name, kind in of_table.items()
    }
    if not tables or not all(tables.values()):
        raise GrammarError("a grammar of SQL needs at least one table, and each table at least one column")
    edges = [_edge(pair, columns) for pair in joins]
    sources = [(sequence, text) for table in tables for sequence, text in _sources([table], edges, max_tables)]
    queries = [
        _Queries(number, text, _columns(sequence, tables, columns)) for number, (sequence, text) in enumerate(sources)
    ]
    start = " | ".join(f"query{number}" for number in range(len(queries)))
    return "\n".join([f"start: {start}", *(rule for each in queries for rule in each.rules()), _TERMINALS])


_Place = tuple[str, str]


def _kind(table: str, name: str, kind: object) -> str:
    word = kind.lower() if isinstance(kind, str) else ""
    found = next((each for prefix, each in _KINDS.items() if word.startswith(prefix)), None)
    if found is None:
        known = ", ".join(_KINDS)
        raise GrammarError(f"column {table}.{name} has the type {kind!r}; known types begin with {known}")
    return found


def _edge(pair: tuple[str, str], columns: Mapping[_Place, str]) -> tuple[_Place, _Place]:
    places = {f"{table}.{name}": (table, name) for table, name in columns}
    if isinstance(pair, str) or len(pair) != 2:
        raise GrammarError(f'a join is a pair of columns such as ("orders.customer", "customers.id"), not {pair!r}')
    for name in pair:
        if name not in places:
            raise GrammarError(f"there is no column {name!r} to join on; there are {', '.join(places)}")
    left, right = pair
    return places[left], places[right]


def _sources(tables: list[str], edges: Sequence[tuple[_Place, _Place]], limit: int) -> Iterator[tuple[list[str], str]]:
    """Yield the ways to read a first table, alone or joined with others: the tables, and an expression of the text."""
    yield tables, _literal(quoted(tables[0]))
    pending = [(tables, _literal(quoted(tables[0])))]
    while pending:
        joined, text = pending.pop()
        for left, right in (each for edge in edges for each in (edge, edge[::-1])):
            if len(joined) < limit and left[0] in joined and right[0] not in joined:
                names = _qualified(left), _qualified(right)
                on = f"({' | '.join(_literal(' = '.join(each)) for each in (names, names[::-1]))})"
                join = _literal(f" JOIN {quoted(right[0])} ON ")
                longer = ([*joined, right[0]], f'{text} (" LEFT")? {join} {on}')
                pending.append(longer)
                yield longer


def _columns(
    joined: Sequence[str], tables: Mapping[str, Mapping[str, str]], kinds: Mapping[_Place, str]
) -> list[_Column]:
    """Return the columns of a query: with the names of their tables if there are several, else with or without."""
    places = [(table, name) for table in joined for name in tables[table]]
    short = len(joined) == 1
    return [_Column((_qualified(place), *([quoted(place[1])] if short else [])), kinds[place]) for place in places]


def _qualified(place: _Place) -> str:
    return f"{quoted(place[0])}.{quoted(place[1])}"


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class _Queries:
    """The rules of the queries that read the same tables.

    Args:
        number: part of the names of rules.
        source: expression of the tables.
        columns: their columns.
    """

    def __init__(self, number: int, source: str, columns: Sequence[_Column]) -> None:
        self._number = number
        self._source = source
        self._columns = columns

    def rules(self) -> Iterator[str]:
        """Yield the rules."""
        n = self._number
        grouped = [f"grouped{n}_{i}" for i in range(len(self._columns))]
        yield f"query{n}: plain{n} | total{n} | {' | '.join(grouped)}"
        items = f'("*" | value{n} (", " value{n})*)'
        order = f'(" ORDER BY " column{n} direction? (", " column{n} direction?)*)?'
        yield f'plain{n}: "SELECT " ("DISTINCT ")? {items} {self._from()} {order} limit?'
        yield f'total{n}: "SELECT " total_value{n} (", " total_value{n})* {self._from()}'
        for i, column in enumerate(self._columns):
            yield from self._grouped(i, column)
        yield from self._values()
        yield from self._conditions()

    def _from(self) -> str:
        n = self._number
        return f'" FROM " {self._source} (" WHERE " condition{n})?'

    def _grouped(self, i: int, column: _Column) -> Iterator[str]:
        """Yield the rules of queries that group by a column, which they also select and may sort by."""
        n, key = self._number, f"key{self._number}_{i}"
        yield f"{key}: {' | '.join(map(_literal, column.names))}"
        having = f'(" HAVING " number_total{n} comparison NUMBER)?'
        order = f'(" ORDER BY " ({key} | total_value{n}) direction?)?'
        select = f'"SELECT " {key} (", " total_value{n})*'
        yield f'grouped{n}_{i}: {select} {self._from()} " GROUP BY " {key} {having} {order} limit?'

    def _values(self) -> Iterator[str]:
        n = self._number
        numbers, texts = self._named("number"), self._named("text")
        yield f"column{n}: {' | '.join(filter(None, (numbers and f'number{n}', texts and f'text{n}')))}"
        totals = [f'"COUNT(*)" | "COUNT(" ("DISTINCT ")? column{n} ")"']
        values = []
        if numbers:
            yield f"number{n}: {numbers}"
            values.append(f'number{n} | "ABS(" number{n} ")" | "ROUND(" number{n} (", " /[0-6]/)? ")"')
            totals.append(f'("SUM(" | "AVG(" | "MIN(" | "MAX(") number{n} ")"')
        if texts:
            yield f"text{n}: {texts}"
            yield f'text_value{n}: text{n} | ("UPPER(" | "LOWER(") text{n} ")"'
            values.append(f'"LENGTH(" text{n} ")"')
        yield f"number_total{n}: {' | '.join(totals)}"
        text_total = f' | ("MIN(" | "MAX(") text{n} ")"' if texts else ""
        yield f"total_value{n}: number_total{n}{text_total}"
        yield f"number_value{n}: {' | '.join(values)}"
        yield f"value{n}: number_value{n}" + (f" | text_value{n}" if texts else "")

    def _conditions(self) -> Iterator[str]:
        n = self._number
        tests = [f'column{n} " IS " ("NOT ")? "NULL"', f'"(" condition{n} ")"', f'"NOT (" condition{n} ")"']
        tests += [
            f"number_value{n} comparison (NUMBER | number_value{n})",
            f'number_value{n} (" NOT")? " BETWEEN " NUMBER " AND " NUMBER',
            f'number_value{n} (" NOT")? " IN (" NUMBERS ")"',
        ]
        if self._named("text"):
            tests += [
                f"text_value{n} comparison (STRING | text_value{n})",
                f'text_value{n} (" NOT")? " LIKE " STRING',
                f'text_value{n} (" NOT")? " IN (" STRINGS ")"',
            ]
        yield f'condition{n}: test{n} ((" AND " | " OR ") test{n})*'
        yield f"test{n}: {' | '.join(tests)}"

    def _named(self, kind: str) -> str:
        return " | ".join(_literal(name) for column in self._columns if column.kind == kind for name in column.names)
