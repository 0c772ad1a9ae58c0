"""What may follow a text, in words: literals as far as they are certain, and classes of characters."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Collection, Iterator

from constrain._core import Matcher
from constrain.engine.special import MARK, spelling

#: Literals are followed through choices of so many characters, up to so many alternatives of so many bytes.
MAX_BRANCHES, MAX_LITERALS, MAX_LENGTH = 8, 12, 40

WHITE_SPACE = b" \t\n\r"
GRAPHIC = range(0x21, 0x7F)
END_OF_TEXT = "the end of the text"
BEYOND_ASCII = "a character beyond ASCII"


def expected(matcher: Matcher) -> tuple[str, ...]:
    """What may come next after the text of a matcher, whose state does not change."""
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
    """A special token, in words."""
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
    """Descriptions of what is best said as classes of characters, and the bytes with which literals may begin."""
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
    """The texts that begin with given bytes, as far as what follows is certain or a choice of few letters."""
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
    """A literal, without the beginning of a further character: there are too many of these to spell them out."""
    whole = getincrementaldecoder("utf-8")("backslashreplace").decode(text)
    return f"`{shown(whole.encode())}`" if whole else BEYOND_ASCII


def _after(matcher: Matcher, text: bytes) -> list[int] | None:
    """The bytes that may follow a further text, or ``None`` where there may be a special token or the end."""
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
    """Whether these are few characters that words and the names of members are made of."""
    few = len(following) <= MAX_BRANCHES
    return few and all(byte >= 0x80 or chr(byte).isalnum() or byte in b'_-$"' for byte in following)


def _runs(values: list[int]) -> Iterator[tuple[int, int]]:
    """Stretches of consecutive numbers, of one kind of character each."""
    start = 0
    for i in range(1, len(values) + 1):
        if i == len(values) or values[i] != values[i - 1] + 1 or _kind(values[i]) != _kind(values[i - 1]):
            yield values[start], values[i - 1]
            start = i


def _kind(byte: int) -> str:
    char = chr(byte)
    return "digit" if char.isdigit() else "upper" if char.isupper() else "lower" if char.islower() else "other"


def shown(text: bytes) -> str:
    """Bytes as they can be printed on one line, a character that is cut off as its bytes."""
    chars = text.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in chars)


def listed(items: tuple[str, ...]) -> str:
    """Expectations as a part of a sentence."""
    return " or ".join(filter(None, [", ".join(items[:-1]), *items[-1:]])) or "nothing"
