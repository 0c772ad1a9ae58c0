"""Kinds of values: tables and lists of similar entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from constrain.demo.synth import pools, template
from constrain.demo.synth.address import addressed
from constrain.demo.synth.counting import Words
from constrain.demo.synth.habits import apart
from constrain.demo.synth.kinds import Ask, Kind, Person, Value, join_and
from constrain.demo.synth.order import Sampling
from constrain.demo.synth.questions import ask_object
from constrain.demo.synth.slots import Slot
from constrain.demo.synth.specs import mention
from constrain.demo.synth.tables import print_table

Row = dict[str, Value]
Printed = tuple[str, Row]

_FILLED = 0.78
"""Share of the cells of optional columns that are not blank."""


_LONGER, _MOST = 0.15, 40
"""Share of the lists that are longer than usual for their kind, and the most entries that these have."""

_TRIES = 20
"""Number of times that a row is made, as long as its first column is that of another."""


@dataclass(frozen=True)
class Records(Kind):
    """Several entries with the same columns; ``data`` is a list of rows, each from column key to value.

    Printed one a line by a random template of ``rows``, or as a table; in mode ``inline`` within a sentence, by a
    template of ``inline``; in mode ``prose`` as sentences in paragraphs, by all templates of ``prose`` in turn. Mode
    ``none`` prints nothing: the words around it say that there are no entries.
    """

    columns: tuple[Slot, ...]
    low: int
    high: int
    rows: tuple[str, ...] = ()
    inline: tuple[str, ...] = ()
    prose: tuple[str, ...] = ()

    def sample(self, rng: Random, mode: str = "") -> Value:
        if mode == "none":
            return Value("", [])
        count = rng.randint(max(1, self.low), self.high)
        if mode != "inline" and rng.random() < _LONGER:
            count = min(count * rng.randint(2, 4), _MOST)
        if mode == "prose":
            return self._paragraphs(count, rng)
        if mode == "inline":
            wording = rng.choice(self.inline)
            printed = self._distinct(count, lambda _: self._print(wording, rng))
            return Value(join_and([text for text, _ in printed]), [row for _, row in printed])
        if not self.rows or (not self._is_nested() and (mode == "table" or rng.random() < 0.3)):
            rows = [row for _, row in self._distinct(count, lambda _: ("", self.sample_row(rng)))]
            return Value(print_table(self.columns, rows, rng), rows)
        wording = rng.choice(self.rows)
        printed = self._distinct(count, lambda _: self._print(wording, rng))
        return Value("\n".join(text for text, _ in printed), [row for _, row in printed])

    def _is_nested(self) -> bool:
        return any(isinstance(column.kind, Records) for column in self.columns)

    def ask(self, rng: Random) -> Ask:
        columns = list(self.columns)
        if rng.random() < 0.35:
            rng.shuffle(columns)
        if len(columns) > 1 and rng.random() < 0.3:
            columns.pop(rng.randrange(len(columns)))
        certain = self._certain()
        single = columns[0]
        if single.key in certain and rng.random() < 0.12:
            item = single.kind.ask(rng)
            return Ask(
                {"type": "array", "items": item.schema}, lambda v: [item.read(row[single.key]) for row in v.data]
            )
        question = ask_object(columns, certain, rng, nest=False)
        return Ask({"type": "array", "items": question.schema}, lambda v: [question.read(row) for row in v.data])

    def _paragraphs(self, count: int, rng: Random) -> Value:
        """Write every row in another wording than the one before; some texts break into paragraphs or digress."""
        wordings = rng.sample(self.prose, len(self.prose))
        printed = self._distinct(count, lambda number: self._print(wordings[number % len(wordings)], rng))
        share, gap = rng.choice([0.0, 0.2, 0.4, 1.0]), rng.choice(["\n", "\n\n"])
        asides = rng.choice([0.0, 0.0, 0.0, 0.1, 0.3])
        text = printed[0][0]
        for sentence, _ in printed[1:]:
            text += f" {pools.filler(rng)}" if rng.random() < asides else ""
            text += (gap if rng.random() < share else " ") + sentence
        return Value(text, [row for _, row in printed])

    def _distinct(self, count: int, make: Callable[[int], Printed]) -> list[Printed]:
        """Make rows by their numbers, if possible all with different first columns.

        A row that repeats the first column of another is made again some times; if it still does, it ends a list that
        is longer than usual.
        """
        key = self.columns[0].key
        rows: list[Printed] = []
        seen: set[str] = set()
        for number in range(count):
            for _ in range(_TRIES):
                printed = make(number)
                first = printed[1][key].text.lower() if key in printed[1] else ""
                if first not in seen:
                    break
            if first in seen and number >= self.high:
                break
            rows.append(printed)
            seen.update([first] if first else [])
        return rows

    def sample_row(self, rng: Random) -> Row:
        """Sample a row of a table; columns that some wordings leave out are sometimes blank."""
        certain = self._certain()
        record = Sampling(self.columns, rng)
        with apart(rng):
            for column in self.columns:
                if column.key in certain or rng.random() < _FILLED:
                    record.sample(column.key, "label")
        return record.values

    def _print(self, wording: str, rng: Random) -> Printed:
        record, words = Sampling(self.columns, rng), Words()

        def fill(key: str, mode: str) -> str:
            value = mention(key, rng) if key.startswith("=") else record.sample(key, mode)
            words.filled(value.data)
            return value.text

        people = {column.key for column in self.columns if isinstance(column.kind, Person)}
        with apart(rng):
            parsed = addressed(template.parse(wording), people, rng)
            return template.render(parsed, rng, fill, words.say), record.values

    def _certain(self) -> set[str]:
        """The columns that occur in every wording."""
        stated = [template.always(template.parse(wording)) for wording in (*self.rows, *self.inline, *self.prose)]
        return {column.key for column in self.columns}.intersection(*stated)
