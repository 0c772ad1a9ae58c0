"""Compiled grammars that are kept, so that the same constraint compiles once."""

from __future__ import annotations

import json
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from constrain.arguments import check_count, check_type, refused
from constrain.engine.grammar import CompiledGrammar, Limits
from constrain.engine.lark import compile_lark
from constrain.engine.store import Store
from constrain.engine.vocabulary import Vocabulary

S = TypeVar("S")
P = ParamSpec("P")
Key = tuple[Any, ...]

DIRECTORY_VARIABLE = "CONSTRAIN_CACHE_DIR"

#: Grammars that were used before so many others are not in use any more.
GROWING = 64


@dataclass
class _Entry:
    """A kept grammar.

    Attributes:
        options: what its key knows by identity, which must live as long as the key.
        nbytes: its size when it was last looked at.
    """

    grammar: CompiledGrammar
    options: tuple[Any, ...]
    nbytes: int = 0


class GrammarCache:
    """Compiled grammars by source, options and vocabulary; those that were not used for longest are dropped first.

    Thread-safe: what several threads ask for at once is compiled by one of them.

    Args:
        max_bytes: memory that the grammars may take together. Grammars grow in use, so with every call the sizes of
            those that were used last are taken anew.
        directory: folder in which Lark grammars are kept in a form that need not be parsed again, for other runs of
            the program. They are JSON files; damaged ones and those of other versions are ignored. Other constraints
            compile as fast as a file is read, and are not written.
    """

    def __init__(self, max_bytes: int = 256 << 20, directory: str | Path | None = None) -> None:
        check_count("max_bytes", max_bytes)
        check_type("directory", directory, (str, os.PathLike, type(None)), "the path of a folder")
        self.max_bytes = max_bytes
        self._store = Store(directory) if directory else None
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._measured = 0
        self._compiling: dict[Key, threading.Lock] = {}
        self._lock = threading.Lock()

    def compile(
        self,
        compiler: Callable[Concatenate[S, Vocabulary, P], CompiledGrammar],
        source: S,
        vocab: Vocabulary,
        *args: P.args,
        **options: P.kwargs,
    ) -> CompiledGrammar:
        """``compiler(source, vocab, **options)``, or what it returned before for the same arguments.

        Args:
            compiler: :func:`compile_json_schema`, :func:`compile_regex`, :func:`compile_lark` or
                :func:`compile_choices`.
            source: the schema, pattern, grammar or texts; the same where its JSON text, or its compiled pattern, is.
            vocab: the vocabulary of the model.
            args, options: further arguments of the compiler; the same where their values are. Objects such as
                registries are told apart by identity.

        Raises:
            GrammarError: whatever the compiler raises. Failures are not kept.
            ArgumentError: the compiler cannot be called.
        """
        if not callable(compiler):
            raise refused("compiler", compiler, "a function that compiles, such as compile_regex")
        values = (*args, *(value for _, value in sorted(options.items())))
        try:
            key = (compiler, _text_of(source), vocab, len(args), *sorted(options), *map(_identity, values))
        except (TypeError, ValueError, RecursionError):  # nothing that could be kept, or a mistake to be named
            return compiler(source, vocab, *args, **options)
        with self._lock:
            if grammar := self._find(key):
                return grammar
            compiling = self._compiling.setdefault(key, threading.Lock())
        with compiling:
            with self._lock:
                if grammar := self._find(key):
                    return grammar
            try:
                grammar = self._compile(compiler, source, vocab, *args, **options)
                with self._lock:
                    self._entries[key] = _Entry(grammar, values)
                    self._shrink()
            finally:
                with self._lock:
                    self._compiling.pop(key, None)
        return grammar

    def __len__(self) -> int:
        with self._lock:
            return len(self._entries)

    @property
    def nbytes(self) -> int:
        """Bytes that the kept grammars take by now."""
        with self._lock:
            return sum(entry.grammar.nbytes for entry in self._entries.values())

    def clear(self) -> None:
        """Drop all grammars; those in use elsewhere live on."""
        with self._lock:
            self._entries.clear()
            self._measured = 0

    def _compile(self, compiler: Callable[..., CompiledGrammar], *args: Any, **options: Any) -> CompiledGrammar:
        if compiler is compile_lark and self._store:
            options.setdefault("store", self._store)
        return compiler(*args, **options)

    def _find(self, key: Key) -> CompiledGrammar | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        self._shrink()
        return entry.grammar

    def _shrink(self) -> None:
        for entry in islice(reversed(self._entries.values()), GROWING):
            nbytes = entry.grammar.nbytes
            self._measured += nbytes - entry.nbytes
            entry.nbytes = nbytes
        while self._measured > self.max_bytes:
            _, entry = self._entries.popitem(last=False)
            self._measured -= entry.nbytes


def _text_of(source: Any) -> Any:
    """Something equal for sources that mean the same.

    Raises:
        TypeError, ValueError, RecursionError: it is nothing that JSON could tell.
    """
    return source if isinstance(source, re.Pattern) else json.dumps(source)


def _identity(value: Any) -> Any:
    """Something equal for values that mean the same to a compiler."""
    if isinstance(value, Mapping):
        return (dict, *((name, _identity(item)) for name, item in value.items()))
    if isinstance(value, list):
        return (list, *map(_identity, value))
    plain = value is None or isinstance(value, (str, int, float, re.Pattern, Limits))
    return (type(value), value) if plain else id(value)


#: The cache that the filters share.
grammar_cache = GrammarCache(directory=os.environ.get(DIRECTORY_VARIABLE))
