"""Descriptions of the allowed continuations of a text: literals where they are certain, else character classes."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Collection, Iterator

from constrain._core import Matcher
from constrain.engine.special import MARK, spelling

#: A literal is extended through choices of at most MAX_BRANCHES characters.
MAX_BRANCHES = 8
#: Maximum number of literals, and of bytes of each.
MAX_LITERALS, MAX_LENGTH = 12, 40

WHITE_SPACE = b" \t\n\r"
GRAPHIC = range(0x21, 0x7F)
END_OF_TEXT = "the end of the text"
BEYOND_ASCII = "a character beyond ASCII"


def expected(matcher: Matcher) -> tuple[str, ...]:
    """Describe what a matcher allows next. Its state does not change."""
    matcher = matcher.clone()
    following = set(_next_bytes(matcher))
    special = _special_tokens(matcher) if MARK[0] in following else []
    following.discard(MARK[0])
    graphic = {byte for byte in following if byte not in WHITE_SPACE}
    if _is_any_character(graphic):
        found = [_any_character(following)]
    else:
        classes, firsts = _split(graphic)
        found = [*_literals(matcher, firsts), *classes]
        if len(graphic) < len(following):
            found.append("white space")
    found += special
    if matcher.is_accepting():
        found.append(END_OF_TEXT)
    return tuple(found)


def special_token(name: str) -> str:
    """Describe a special token."""
    return f"the token {name}"


def _special_tokens(matcher: Matcher) -> list[str]:
    names = sorted({name for _, name in matcher.vocabulary.special})
    return [special_token(name) for name in names if matcher.clone().accept_bytes(spelling(name))]


def _is_any_character(following: Collection[int]) -> bool:
    return sum(byte in following for byte in GRAPHIC) >= len(GRAPHIC) - MAX_BRANCHES


def _any_character(following: Collection[int]) -> str:
    missing = [f"`{chr(byte)}`" for byte in GRAPHIC if byte not in following]
    if not any(byte in following for byte in range(0x20)):
        missing.append("control characters")
    return "any character" + (f" but {' '.join(missing)}" if missing else "")


def _split(following: Collection[int]) -> tuple[list[str], list[int]]:
    """Split bytes into those described as character classes, and those with which literals begin."""
    ascii_, beyond = sorted(b for b in following if b < 0x80), sorted(b for b in following if b >= 0x80)
    classes, firsts = [], []
    if _are_letters(ascii_):
        firsts += ascii_
    else:
        for first, last in _runs(ascii_):
            if last - first < 2:
                firsts += range(first, last + 1)
            else:
                classes.append(f"[{shown(bytes([first]))}-{shown(bytes([last]))}]")
    if len(beyond) <= MAX_BRANCHES:
        firsts += beyond
    else:
        classes.append(BEYOND_ASCII)
    return classes, firsts


def _literals(matcher: Matcher, firsts: list[int]) -> list[str]:
    """Extend given first bytes to literals, while the next byte is certain or a choice of few letters."""
    done: list[bytes] = []
    open_ = deque(bytes([byte]) for byte in firsts)
    while open_:
        text = open_.popleft()
        following = _after(matcher, text)
        if following is None or len(text) >= MAX_LENGTH:
            done.append(text)
        elif len(following) == 1:
            open_.append(text + bytes(following))
        elif _are_letters(following) and len(done) + len(open_) + len(following) <= MAX_LITERALS:
            open_.extend(text + bytes([byte]) for byte in following)
        else:
            done.append(text)
    return list(dict.fromkeys(map(_literal, sorted(done))))


def _literal(text: bytes) -> str:
    """Describe a literal without the incomplete character at its end, which has too many completions to list."""
    whole = getincrementaldecoder("utf-8")("backslashreplace").decode(text)
    return f"`{shown(whole.encode())}`" if whole else BEYOND_ASCII


def _after(matcher: Matcher, text: bytes) -> list[int] | None:
    """Return the bytes allowed after a further text; ``None`` if a special token or the end is allowed too."""
    matcher.accept_bytes(text)
    following = list(_next_bytes(matcher))
    ends = matcher.is_accepting() or MARK[0] in following
    matcher.rollback(1)
    return None if ends else following


def _next_bytes(matcher: Matcher) -> Iterator[int]:
    for byte in range(256):
        if matcher.accept_bytes(bytes([byte])):
            matcher.rollback(1)
            yield byte


def _are_letters(following: Collection[int]) -> bool:
    """Whether these are few characters, and all of them occur in words or names of members."""
    few = len(following) <= MAX_BRANCHES
    return few and all(byte >= 0x80 or chr(byte).isalnum() or byte in b'_-$"' for byte in following)


def _runs(values: list[int]) -> Iterator[tuple[int, int]]:
    """Yield runs of consecutive code points of one kind of character."""
    start = 0
    for i in range(1, len(values) + 1):
        if i == len(values) or values[i] != values[i - 1] + 1 or _kind(values[i]) != _kind(values[i - 1]):
            yield values[start], values[i - 1]
            start = i


def _kind(byte: int) -> str:
    char = chr(byte)
    return "digit" if char.isdigit() else "upper" if char.isupper() else "lower" if char.islower() else "other"


def shown(text: bytes) -> str:
    """Format bytes for printing on one line; an incomplete character is shown as its bytes."""
    chars = text.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in chars)


def listed(items: tuple[str, ...]) -> str:
    """Join descriptions to a part of a sentence."""
    return " or ".join(filter(None, [", ".join(items[:-1]), *items[-1:]])) or "nothing"
