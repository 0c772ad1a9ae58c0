"""A model's vocabulary, as the engine sees it: token ids and the bytes they stand for."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

from constrain import _core
from constrain.engine.tokens import MAX_TOKENS, read_tokens
from constrain.errors import VocabularyError

# What a vocabulary is tried on: where these come back as other bytes, its tokens are not what they seem.
_PROBES = (
    '{"name": "Ada", "age": 36, "tags": ["a", "b"], "ok": true, "none": null}',
    "The quick brown fox, 12.50 EUR; naïve café, Ελλάδα, Москва, 東京, 한국어, 🙂👍🏽!",
    "  two  spaces,\ttabs\nand\r\nlines\n\n",
    "snake_case camelCase kebab-case C:\\path\\file.txt https://example.org/a?b=c#d",
    "<tag attr='x'>&amp;</tag> [1](2) {3} `4` ~5~ ^6^ |7| @8 $9 %0",
)


class TokenizerLike(Protocol):
    """What :meth:`Vocabulary.from_tokenizer` needs of a tokenizer."""

    config: Any
    eos_token_id: int | None

    @property
    def hf_tokenizer(self) -> Any: ...


class Vocabulary:
    """An immutable vocabulary, shared by grammars and threads.

    Attributes:
        size: width of the model's output in tokens; ids beyond the tokenizer's are never allowed.
        eos_token_ids: ids that end a text.
        special_token_ids: ids that are no text; no constraint ever allows them, but for those that end a text.
    """

    def __init__(
        self, core: _core.Vocabulary, special_token_ids: frozenset[int] = frozenset(), warn_missing: bool = True
    ) -> None:
        self.core = core
        self.size: int = core.size
        self.eos_token_ids: tuple[int, ...] = tuple(core.eos)
        self.special_token_ids = special_token_ids
        if warn_missing and (missing := core.missing_bytes):
            warnings.warn(
                f"{len(missing)} bytes, {missing[0]:#04x} among them, have no token of their own: "
                "a text that needs one cannot be generated",
                stacklevel=3,
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
        """A vocabulary from the bytes of each token, by id; empty bytes are no token.

        Args:
            tokens: bytes of each token, as they stand in the middle of a text.
            eos_ids: ids that end a text.
            special_ids: ids that are no text.
            size: width of the model's output, by default the length of the list; tokens beyond it are left out.
            first_space: ``"optional"`` lets the first token of a text carry one space that the decoder will drop.

        Raises:
            VocabularyError: an id is outside the vocabulary, or a token is longer than 65,535 bytes.
        """
        special = frozenset(special_ids)
        eos = sorted(set(eos_ids))
        width = size or len(tokens)
        for i in [*eos, *special]:
            if not 0 <= i < width:
                raise VocabularyError(f"token {i} is outside the vocabulary of {width} tokens")
        texts = [b"" if i in special else text for i, text in enumerate(tokens)]
        try:
            core = _core.Vocabulary(texts, eos, width, first_space == "optional")
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
        """The vocabulary of a model folder: ``tokenizer.json``, and the end-of-sequence ids that its other files name.

        Args:
            model_dir: folder with ``tokenizer.json``.
            size: width of the model's output; by default that of ``config.json``, or else of the tokenizer.
            first_space: whether a first token may carry one space that the decoder drops; ``"auto"`` asks the
                tokenizer.

        Raises:
            VocabularyError: a file is missing or malformed, the tokens have no fixed bytes, or no id ends a text.
        """
        folder = Path(model_dir)
        tokenizer = _read_json(folder / "tokenizer.json", required=True)
        config = _read_json(folder / "config.json")
        with _reading(f"a file of {folder}"):
            ids = _eos_ids(folder, tokenizer, config)
            width = size or (config.get("text_config") or {}).get("vocab_size") or config.get("vocab_size")
        return cls._from_json(tokenizer, ids, width, first_space)

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer: TokenizerLike,
        size: int | None = None,
        *,
        first_space: Literal["auto", "keep", "optional"] = "auto",
    ) -> Vocabulary:
        """The vocabulary of a loaded tokenizer; arguments and errors as for :meth:`from_pretrained`."""
        ids = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        generation = getattr(tokenizer.config, "generation_config", None) or {}
        ids += generation.get("eos_token_id") or []
        width = size or getattr(tokenizer.config, "vocab_size", None)
        return cls._from_json(json.loads(tokenizer.hf_tokenizer.to_str()), ids, width, first_space)

    @classmethod
    def _from_json(
        cls, tokenizer: dict[str, Any], eos_ids: Iterable[int], size: int | None, first_space: str
    ) -> Vocabulary:
        with _reading("the tokenizer description"):
            table = read_tokens(tokenizer)
        if size is not None and not (isinstance(size, int) and 0 < size <= MAX_TOKENS):
            raise VocabularyError(f"a vocabulary has 1 to {MAX_TOKENS:,} tokens, not {size!r}")
        optional = table.first_space_optional if first_space == "auto" else first_space == "optional"
        width = size or len(table.tokens)
        eos = sorted({i for i in eos_ids if 0 <= i < width})
        if not eos:
            raise VocabularyError(
                "no end-of-sequence token is known, so a text could never end; name one in config.json"
            )
        _verify(tokenizer, table.tokens)
        core = _core.Vocabulary(table.tokens, eos, width, optional)
        return cls(core, table.special_ids | frozenset(eos))

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of a token; empty for special tokens and ids that no token has."""
        return self.core.bytes(token_id)

    def __repr__(self) -> str:
        return f"Vocabulary(size={self.size}, eos_token_ids={self.eos_token_ids})"


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Whatever goes wrong while taking apart someone's JSON is a mistake in that JSON."""
    try:
        yield
    except VocabularyError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise VocabularyError(f"{what} is malformed: {error!r}") from error


def _read_json(path: Path, required: bool = False) -> dict[str, Any]:
    if not path.is_file():
        if required:
            raise VocabularyError(f"{path} does not exist")
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise VocabularyError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise VocabularyError(f"{path} does not hold a JSON object")
    return value


def _eos_ids(folder: Path, tokenizer: dict[str, Any], config: dict[str, Any]) -> list[int]:
    ids: list[int] = []
    for source in (config, config.get("text_config") or {}, _read_json(folder / "generation_config.json")):
        value = source.get("eos_token_id")
        ids += [i for i in (value if isinstance(value, list) else [value]) if isinstance(i, int)]
    name = _read_json(folder / "tokenizer_config.json").get("eos_token")
    name = name.get("content") if isinstance(name, dict) else name
    ids += [token["id"] for token in tokenizer.get("added_tokens", []) if token.get("content") == name]
    return ids


def _verify(description: dict[str, Any], tokens: list[bytes]) -> None:
    """Checks the token table against the tokenizer itself."""
    import tokenizers

    try:
        backend = tokenizers.Tokenizer.from_str(json.dumps(description))
    except Exception as error:  # the library raises no narrower type
        raise VocabularyError(f"the tokenizer description is malformed: {error}") from error
    for probe in _PROBES:
        ids = backend.encode(probe, add_special_tokens=False).ids
        text = b"".join(tokens[i] for i in ids)
        if text != probe.encode() and text != b" " + probe.encode():
            raise VocabularyError(
                f"the tokenizer spells {probe[:20]!r}... as {text[:40]!r}...: its tokens do not add up to the text, "
                "so constraints over text cannot be exact with it"
            )
