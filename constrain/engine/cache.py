"""Cache of compiled grammars, so that the same constraint compiles once."""

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
from constrain.engine.compiled_grammar import CompiledGrammar, Limits
from constrain.engine.json_schema import JsonLayout, LaidOutSchema
from constrain.engine.lark import InJsonString, compile_lark
from constrain.engine.store import DIRECTORY_VARIABLE, Store
from constrain.engine.vocabulary import Vocabulary

S = TypeVar("S")
P = ParamSpec("P")
Key = tuple[Any, ...]

#: Number of most recently used grammars whose sizes are measured again. Grammars used less recently do not grow.
MAX_GROWING = 64


@dataclass
class _Entry:
    """A cached grammar.

    Attributes:
        options: objects whose identity is part of the key; references to them keep the identity valid.
        nbytes: size at the last measurement.
    """

    grammar: CompiledGrammar
    options: tuple[Any, ...]
    nbytes: int = 0


class GrammarCache:
    """Least-recently-used cache of compiled grammars, by source, options and vocabulary.

    Thread-safe: if several threads ask for the same grammar, one of them compiles it and the others wait.

    Args:
        max_bytes: total memory of the cached grammars. Grammars grow in use, so every call measures the most recently
            used ones again.
        directory: folder in which parsed Lark grammars are cached for other runs of the program, as JSON files. Files
            that are damaged or from another version are ignored. Other constraints compile as fast as a file is read,
            so they are not written.
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
        """Return the cached result of ``compiler(source, vocab, *args, **options)``, or compile and cache it.

        Args:
            compiler: :func:`compile_json_schema`, :func:`compile_regex`, :func:`compile_lark` or
                :func:`compile_choices`.
            source: the schema, pattern, grammar or texts; compared by its JSON text, or as a compiled pattern.
            vocab: the vocabulary of the model.
            args, options: further arguments of the compiler; compared by value, and objects such as registries by
                identity.

        Raises:
            GrammarError: raised by the compiler. Failures are not cached.
            ArgumentError: the compiler is not callable.
        """
        if not callable(compiler):
            raise refused("compiler", compiler, "a function that compiles, such as compile_regex")
        values = (*args, *(value for _, value in sorted(options.items())))
        try:
            key = (compiler, _source_key(source), vocab, len(args), *sorted(options), *map(_argument_key, values))
        except (TypeError, ValueError, RecursionError):  # has no key, or is invalid, and then the compiler says why
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
        """Current memory of the cached grammars, in bytes."""
        with self._lock:
            return sum(entry.grammar.nbytes for entry in self._entries.values())

    def clear(self) -> None:
        """Remove all grammars; references to them held elsewhere stay valid."""
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
        for entry in islice(reversed(self._entries.values()), MAX_GROWING):
            nbytes = entry.grammar.nbytes
            self._measured += nbytes - entry.nbytes
            entry.nbytes = nbytes
        while self._measured > self.max_bytes:
            _, entry = self._entries.popitem(last=False)
            self._measured -= entry.nbytes


def _source_key(source: Any) -> Any:
    """Return a key for a source: its JSON text, or the compiled pattern itself.

    Raises:
        TypeError, ValueError, RecursionError: the source cannot be written as JSON.
    """
    return source if isinstance(source, re.Pattern) else json.dumps(source)


def _argument_key(value: Any) -> Any:
    """Return a key for an argument: by value for plain types and containers of them, else by identity."""
    if isinstance(value, Mapping):
        return (dict, *((name, _argument_key(item)) for name, item in value.items()))
    if isinstance(value, list):
        return (list, *map(_argument_key, value))
    if isinstance(value, LaidOutSchema):
        return (LaidOutSchema, _argument_key(value.schema), value.layout)
    plain = value is None or isinstance(value, (str, int, float, re.Pattern, InJsonString, JsonLayout, Limits))
    return (type(value), value) if plain else id(value)


#: The cache that the filters share.
grammar_cache = GrammarCache(directory=os.environ.get(DIRECTORY_VARIABLE))
