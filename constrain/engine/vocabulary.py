"""Vocabularies of models: the bytes of each token id."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from constrain import _core
from constrain.arguments import check_count, check_type, refused
from constrain.engine.store import DIRECTORY_VARIABLE, Store
from constrain.engine.stored_vocabulary import read_vocabulary, vocabulary_key, written_vocabulary
from constrain.engine.tokens import end_ids, mid_text_encoder, read_tokens, sample_texts, special_names
from constrain.errors import VocabularyError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: More tokens than any model has; a larger size is taken for a mistake.
MAX_TOKENS = 1 << 24


class TokenizerLike(Protocol):
    """The interface that :meth:`Vocabulary.from_tokenizer` needs of a tokenizer."""

    config: Any
    eos_token_id: int | None
    tokenizer_config_dict: dict[str, Any] | None

    @property
    def hf_tokenizer(self) -> Tokenizer: ...


class Vocabulary:
    """An immutable vocabulary, shared by grammars and threads.

    Attributes:
        size: number of the model's logits; ids beyond the tokenizer's are never allowed.
        eos_token_ids: ids of the end-of-sequence tokens.
        special_token_ids: ids of special tokens, which have no text. Constraints allow the end-of-sequence tokens at
            the end of a text, and other special tokens where a grammar names them.
        special_tokens: ids of special tokens by name, end-of-sequence tokens included.
    """

    def __init__(
        self, core: _core.Vocabulary, special_token_ids: frozenset[int] = frozenset(), warn_missing: bool = True
    ) -> None:
        self.core = core
        self.size: int = core.size
        self.eos_token_ids: tuple[int, ...] = tuple(core.eos)
        self.special_token_ids = special_token_ids
        self.special_tokens: dict[str, int] = {name: token for token, name in core.special}
        if warn_missing and (missing := core.missing_bytes):
            warnings.warn(
                f"{len(missing)} bytes, {missing[0]:#04x} among them, have no single-byte token: "
                "texts that cannot be tokenized are excluded, and masks take longer",
                stacklevel=4,
            )

    @classmethod
    def from_tokens(
        cls,
        tokens: Sequence[bytes],
        eos_ids: Iterable[int],
        special_ids: Iterable[int] = (),
        *,
        size: int | None = None,
        first_space: Literal["keep", "optional"] = "keep",
    ) -> Vocabulary:
        """Create a vocabulary from the bytes of each token.

        Args:
            tokens: bytes of each token in the middle of a text, by id; empty for an id without a token.
            eos_ids: ids of the end-of-sequence tokens.
            special_ids: ids of special tokens; their bytes, and those of end-of-sequence tokens, are their names.
            size: number of the model's logits, by default the length of the list; tokens beyond it are ignored.
            first_space: ``"optional"`` if the first token of a text may carry one space that the decoder drops.

        Raises:
            VocabularyError: an id is outside the vocabulary, or a token is longer than 65,535 bytes.
            ArgumentError: an argument is of the wrong type.
        """
        check_type("tokens", tokens, (list, tuple), "a list of bytes")
        for i in (i for i, text in enumerate(tokens) if not isinstance(text, bytes)):
            raise refused(f"tokens[{i}]", tokens[i], "bytes")
        _check_first_space(first_space, "keep", "optional")
        _check_size(size)
        special, eos = frozenset(_ids("special_ids", special_ids)), sorted(set(_ids("eos_ids", eos_ids)))
        width = size or len(tokens)
        for i in [*eos, *special]:
            if not 0 <= i < width:
                raise VocabularyError(f"token {i} is outside the vocabulary of {width} tokens")
        texts = [b"" if i in special else text for i, text in enumerate(tokens)]
        names = [(i, tokens[i].decode(errors="replace")) for i in sorted(special.union(eos)) if i < len(tokens)]
        try:
            core = _core.Vocabulary(texts, eos, width, first_space == "optional", names)
        except ValueError as error:
            raise VocabularyError(str(error)) from error
        return cls(core, special | frozenset(eos), warn_missing=False)

    @classmethod
    def from_pretrained(
        cls,
        model_dir: str | Path,
        size: int | None = None,
        *,
        first_space: Literal["auto", "keep", "optional"] = "auto",
    ) -> Vocabulary:
        """Read the vocabulary of a model folder: ``tokenizer.json``, and the end-of-sequence ids of its other files.

        If the environment variable ``CONSTRAIN_CACHE_DIR`` names a folder, the tokens are cached there, and later runs
        of the program load the tokenizer only if they need one.

        Args:
            model_dir: folder with ``tokenizer.json``.
            size: number of the model's logits; by default that of ``config.json``, or else of the tokenizer.
            first_space: ``"optional"`` if the first token of a text may carry one space that the decoder drops;
                ``"auto"`` takes this from the tokenizer.

        Raises:
            VocabularyError: a file is missing or malformed, the tokens have no fixed bytes, or there is no
                end-of-sequence token.
            ArgumentError: an argument is of the wrong type.
        """
        check_type("model_dir", model_dir, (str, os.PathLike), "the path of a folder")
        folder = Path(model_dir)
        directory = os.environ.get(DIRECTORY_VARIABLE)
        if not directory or not (folder / "tokenizer.json").is_file():
            return cls._read_folder(folder, size, first_space)
        store, key = Store(directory), vocabulary_key(folder, size, first_space)
        if stored := store.get(key):
            core = read_vocabulary(stored["core"], _lazy_encoder(folder / "tokenizer.json"))
            return cls(core, frozenset(stored["special_token_ids"]))
        vocabulary = cls._read_folder(folder, size, first_space)
        special = sorted(vocabulary.special_token_ids)
        store.put(key, {"core": written_vocabulary(vocabulary.core), "special_token_ids": special})
        return vocabulary

    @classmethod
    def _read_folder(cls, folder: Path, size: int | None, first_space: str) -> Vocabulary:
        tokenizer = _load_tokenizer(folder / "tokenizer.json")
        settings = _read_json(folder / "tokenizer_config.json")
        config = _read_json(folder / "config.json")
        generation = _read_json(folder / "generation_config.json")
        with _malformed_as_error(f"a file of {folder}"):
            text_config = config.get("text_config") or {}
            ids = [i for source in (config, text_config, generation) for i in _listed(source.get("eos_token_id"))]
            width = size or text_config.get("vocab_size") or config.get("vocab_size")
        return cls._read(tokenizer, settings, ids, width, first_space)

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer: TokenizerLike,
        size: int | None = None,
        *,
        first_space: Literal["auto", "keep", "optional"] = "auto",
    ) -> Vocabulary:
        """Read the vocabulary of a loaded tokenizer.

        Args:
            tokenizer: a :class:`constrain.ExLlamaV2Tokenizer`; for tokenizers of other libraries use
                :meth:`from_pretrained`.
            size, first_space: see :meth:`from_pretrained`, which raises the same errors.
        """
        if not hasattr(tokenizer, "hf_tokenizer"):
            wanted = "a constrain.ExLlamaV2Tokenizer (for others, give their folder to Vocabulary.from_pretrained)"
            raise refused("tokenizer", tokenizer, wanted)
        ids = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        generation = getattr(tokenizer.config, "generation_config", None) or {}
        ids += _listed(generation.get("eos_token_id"))
        width = size or getattr(tokenizer.config, "vocab_size", None)
        return cls._read(tokenizer.hf_tokenizer, tokenizer.tokenizer_config_dict or {}, ids, width, first_space)

    @classmethod
    def _read(
        cls,
        tokenizer: Tokenizer,
        settings: Mapping[str, Any],
        eos_ids: Iterable[int],
        size: int | None,
        first_space: str,
    ) -> Vocabulary:
        _check_first_space(first_space, "auto", "keep", "optional")
        _check_size(size)
        table = read_tokens(tokenizer, settings)
        width = size or table.size()
        eos = sorted({i for i in [*eos_ids, *end_ids(tokenizer, settings)] if 0 <= i < width})
        if not eos:
            raise VocabularyError(
                "no end-of-sequence token is known, so a text could never end; name one in config.json"
            )
        try:
            core = _core.Vocabulary.from_pieces(
                pieces=table.pieces,
                spelling=table.spelling,
                added=list(table.added.items()),
                special=list(special_names(tokenizer, table, eos).items()),
                eos=eos,
                size=width,
                first_space_optional=table.first_space_optional if first_space == "auto" else first_space == "optional",
                encode=mid_text_encoder(tokenizer),
            )
        except ValueError as error:
            raise VocabularyError(str(error)) from error
        _verify(tokenizer, core)
        return cls(core, table.special_ids | frozenset(eos))

    @cached_property
    def digest(self) -> str:
        """SHA-256 digest of the bytes of all tokens, by which vocabularies of one model are recognised."""
        written = written_vocabulary(self.core)
        return hashlib.sha256(json.dumps([written["tokens"], written["lengths"]]).encode()).hexdigest()

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of a token; empty for special tokens and unused ids."""
        return self.core.bytes(token_id)

    def __repr__(self) -> str:
        return f"Vocabulary(size={self.size}, eos_token_ids={self.eos_token_ids})"


def core_vocabulary(vocab: Vocabulary) -> _core.Vocabulary:
    """Return the native vocabulary of a vocabulary.

    Raises:
        ArgumentError: the argument is not a :class:`Vocabulary`.
    """
    if not isinstance(vocab, Vocabulary):
        raise refused("vocab", vocab, "a constrain.engine.Vocabulary, made with from_tokenizer or from_pretrained")
    return vocab.core


def _check_first_space(first_space: str, *values: str) -> None:
    if first_space not in values:
        raise refused("first_space", first_space, " or ".join(map(repr, values)))


def _check_size(size: int | None) -> None:
    if size is not None:
        check_count("size", size, 1, MAX_TOKENS, VocabularyError)


def _ids(name: str, ids: Iterable[int]) -> list[int]:
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        raise refused(name, ids, "a list of ids")
    values = list(ids)
    for i, id_ in enumerate(values):
        check_count(f"{name}[{i}]", id_, minimum=None)
    return values


@contextmanager
def _malformed_as_error(what: str) -> Iterator[None]:
    """Turn exceptions while unpacking JSON of a model folder into errors that name the file."""
    try:
        yield
    except VocabularyError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise VocabularyError(f"{what} is malformed: {error!r}") from error


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise VocabularyError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise VocabularyError(f"{path} does not hold a JSON object")
    return value


def _listed(ids: Any) -> list[int]:
    """Return the ids of an entry that is one id, a list of ids, or missing."""
    return [i for i in (ids if isinstance(ids, list) else [ids]) if isinstance(i, int)]


def _load_tokenizer(path: Path) -> Tokenizer:
    import tokenizers

    if not path.is_file():
        raise VocabularyError(f"{path} does not exist; give the folder of a model")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower type
        raise VocabularyError(f"{path} is no tokenizer that the tokenizers library can read: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _lazy_encoder(path: Path) -> Callable[[str], list[int]]:
    """Return the encoder of a tokenizer, which is loaded with the first text."""

    @cache
    def encoder() -> Callable[[str], list[int]]:
        return mid_text_encoder(_load_tokenizer(path))

    return lambda text: encoder()(text)


def _verify(tokenizer: Tokenizer, core: _core.Vocabulary) -> None:
    """Check that the bytes of the tokens of encoded texts concatenate to the texts."""
    for text in sample_texts():
        expected = text.encode()
        found = b"".join(map(core.bytes, tokenizer.encode(text, add_special_tokens=False).ids))
        if found not in (expected, b" " + expected):
            raise VocabularyError(
                f"the tokenizer encodes {text!r} as tokens whose bytes are {found!r}: they do not add up to the text, "
                "so constraints cannot be exact with it"
            )
