"""Plain text in prompts: text of others, in which the name of a special token stays text.

Prompts and chat templates write special tokens by their names, and tokenizers find them wherever they stand, also in a
document. So text of others is *hidden* before it is put into a prompt: a separator follows every character that may
begin a name. When the prompt is complete, the separators are removed except within names, which the tokenizer then does
not find. The tokens of the separators that are left are dropped::

    text     a < b <|end|>
    hidden   a <· b <·|end|>        (· is the separator)
    prompt   <|user|>a < b <·|end|><|end|>
    tokens   <|user|> · a · < · b · < · | · end · |> · <|end|>

Without such a name in the text of others, the tokens are those of the whole prompt.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from tokenizers import AddedToken

from constrain.tokenizer.backend import ExLlamaV2TokenizerHF

#: A code point that Unicode reserves for internal use.
_SEPARATOR = "\ufdd0"
#: Number of segments whose tokens are cached, and the length of the longest of them, in characters.
_NUM_CACHED, _MAX_CACHED = 64, 1 << 14
#: Text between two punctuation marks.
_ENCLOSED = re.compile(r"[^\w\s].*[^\w\s]", re.DOTALL)


class PlainText:
    """Hides text of others from a tokenizer, and encodes prompts with hidden text.

    Names that are hidden: those of special tokens, and of other added tokens between punctuation marks, such as
    ``<think>``. Added words and runs of spaces have no effect on a model, and are encoded as usual.
    """

    def __init__(self, backend: ExLlamaV2TokenizerHF, special: Mapping[str, int]) -> None:
        """
        Args:
            backend: the tokenizer.
            special: special tokens by name, those that the backend does not know included.
        """
        self._backend = backend
        added = {token.content: token for token in backend.added_tokens().values()}
        foreign = {name: idx for name, idx in special.items() if name not in added and _ENCLOSED.fullmatch(name)}
        own = [name for name, token in added.items() if len(name) > 1 and not token.special]
        known = [name for name, token in added.items() if len(name) > 1 and token.special]
        enclosed = [name for name in own if _ENCLOSED.fullmatch(name)]
        self._normalise = _normaliser(backend, [added[name] for name in (*known, *enclosed)])
        strict = [*foreign, *self._forms(known, added)]
        soft = self._forms(enclosed, added)
        self._foreign, self._foreign_names = foreign, re.compile(f"({_any_of(foreign)})")
        self._names = re.compile(_any_of([*strict, *soft]))
        begins = f"[{re.escape(''.join({name[0] for name in (*strict, *soft, _SEPARATOR)}))}]"
        self._begins = re.compile(begins)
        self._strictly_begins = re.compile(f"(?!{_any_of(soft)}){begins}")
        self._hidden = re.compile(f"({begins}){_SEPARATOR}")
        self._borders = re.compile(f"(?={_any_of(_independent(added.values()))})")
        self._cached = lru_cache(_NUM_CACHED)(backend.encode)

    def hide(self, text: str, strict_only: bool = False) -> str:
        """Return a text to be put into a prompt for :meth:`encode`.

        Args:
            text: text of others.
            strict_only: hide only the names of special tokens, not those of other added tokens.
        """
        normal = self._normalise(text)
        if normal != text and Counter(self._names.findall(normal)) - Counter(self._names.findall(text)):
            text = normal
        return (self._strictly_begins if strict_only else self._begins).sub(rf"\g<0>{_SEPARATOR}", text)

    def _forms(self, names: Iterable[str], added: Mapping[str, AddedToken]) -> list[str]:
        """Return names, and the forms in which the tokenizer finds them where it normalises the text before."""
        forms = {name: self._normalise(name) if added[name].normalized else name for name in names}
        return [*forms, *(form for form in forms.values() if form)]

    def hide_all(self, value: Any, strict_only: bool = False) -> Any:
        """Return a JSON value with all strings hidden, except roles and types, which templates compare."""
        if isinstance(value, str):
            return self.hide(value, strict_only)
        if isinstance(value, Mapping):
            return {
                self.hide_all(key): each if key in ("role", "type") else self.hide_all(each, strict_only)
                for key, each in value.items()
            }
        return [self.hide_all(each, strict_only) for each in value] if isinstance(value, (list, tuple)) else value

    def encode(self, prompt: str) -> list[int]:
        """Encode a prompt: names of special tokens as these tokens, hidden text as plain text."""
        text, separators = self._revealed(prompt)
        ids: list[int] = []
        start = 0
        for part in self._foreign_names.split(text):
            if part in self._foreign:
                ids.append(self._foreign[part])
            elif part:
                ids += self._encoded(part, {place - start for place in separators})
            start += len(part)
        return ids

    def _revealed(self, prompt: str) -> tuple[str, list[int]]:
        """Remove the separators that do not divide a name; return the text, and the places of the others."""
        begins: list[int] = []

        def reveal(match: re.Match[str]) -> str:
            begins.append(match.start() - len(begins))
            return match[1]

        text = self._hidden.sub(reveal, prompt)
        cuts = [place + 1 for place in begins if self._names.match(text, place)]
        parts = [text[start:end] for start, end in pairwise([0, *cuts, len(text)])]
        return _SEPARATOR.join(parts), [cut + number for number, cut in enumerate(cuts)]

    def _encoded(self, text: str, separators: set[int]) -> list[int]:
        if not separators:
            return [idx for segment in self._borders.split(text) for idx in self._encoded_segment(segment)]
        tokens = zip(*self._backend.encode_with_offsets(text), strict=True)
        return [idx for idx, (start, end) in tokens if separators.isdisjoint(range(start, end))]

    def _encoded_segment(self, text: str) -> list[int]:
        # The prompts for many documents, and the turns of a conversation, have most of their segments in common.
        return self._cached(text) if len(text) <= _MAX_CACHED else self._backend.encode(text)


def _normaliser(backend: ExLlamaV2TokenizerHF, names: Iterable[AddedToken]) -> Callable[[str], str]:
    """Return how the tokenizer changes a text before it looks for names; for those that it finds before, not at all."""
    normalizer = backend.hf_tokenizer.normalizer
    if normalizer is None or not any(token.normalized for token in names):
        return lambda text: text
    normalise: Callable[[str], str] = normalizer.normalize_str
    return normalise


def _independent(added: Collection[AddedToken]) -> list[str]:
    """Return the names of tokens that the text before them has no effect on, and that have none on it.

    The tokenizer finds them in the text as it is, and no other token can begin in front of them and overlap them.
    """
    excluded = {character for token in added for character in token.content[1:]}
    excluded |= {token.content[:1] for token in added if token.lstrip or token.single_word or token.normalized}
    return [token.content for token in added if token.content and token.content[0] not in excluded]


def _any_of(names: Iterable[str]) -> str:
    """Return a pattern that matches any of ``names``, longer ones first; without any, nothing."""
    return "|".join(map(re.escape, sorted(names, key=len, reverse=True))) or "(?!)"
