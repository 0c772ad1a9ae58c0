"""The tokens of a vocabulary as a value of JSON types, for the cache on disk."""

from __future__ import annotations

import hashlib
from array import array
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from constrain import _core

#: The files of a model folder that determine its vocabulary.
FILES = ("tokenizer.json", "tokenizer_config.json", "config.json", "generation_config.json")


def vocabulary_key(folder: Path, size: int | None, first_space: str) -> list[str]:
    """Return the key of a folder's vocabulary: digests of its files, and the arguments that it was read with.

    Raises:
        OSError: a file cannot be read.
    """
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for name in FILES if (path := folder / name).is_file()]
    present = [name for name in FILES if (folder / name).is_file()]
    return ["vocabulary", *present, *digests, str(size), first_space]


def written_vocabulary(core: _core.Vocabulary) -> dict[str, Any]:
    """Return all that a vocabulary is made of, except its tokenizer."""
    tokens = [core.bytes(token) for token in range(core.size)]
    return {
        "tokens": b64encode(b"".join(tokens)).decode(),
        "lengths": b64encode(array("H", map(len, tokens)).tobytes()).decode(),
        "eos": core.eos,
        "special": core.special,
        "first_space_optional": core.first_space_optional,
    }


def read_vocabulary(value: dict[str, Any], encode: Callable[[str], list[int]]) -> _core.Vocabulary:
    """Make the vocabulary that was written.

    Args:
        value: the result of :func:`written_vocabulary`.
        encode: function that encodes a text in the middle of another one.
    """
    tokens = list(_pieces(b64decode(value["tokens"]), array("H", b64decode(value["lengths"]))))
    special = [(token, name) for token, name in value["special"]]
    return _core.Vocabulary(tokens, value["eos"], len(tokens), value["first_space_optional"], special, encode)


def _pieces(data: bytes, lengths: array[int]) -> Iterator[bytes]:
    for start, end in pairwise(accumulate(lengths, initial=0)):
        yield data[start:end]
