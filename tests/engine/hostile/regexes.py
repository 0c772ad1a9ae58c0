"""Regular expressions that are small to write and large to compile, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial


def sources() -> Iterator[tuple[str, Callable[[], str]]]:
    """Every pattern, by name; each is made when it is called for."""
    families: dict[str, tuple[Callable[[int], str], tuple[int, ...]]] = {
        "subsets": (lambda n: f"(a|b)*a(a|b){{{n}}}", (5, 12, 16, 20, 40, 300)),
        "subsets_of_text": (lambda n: f".*x.{{{n}}}", (5, 14, 18, 100, 5_000)),
        "counted": (lambda n: f"(ab?){{{n},{2 * n}}}", (100, 10_000, 60_000, 10**7)),
        "counted_twice": (lambda n: f"((a|bc){{1,{n}}}){{1,{n}}}", (10, 100, 1_000)),
        "counted_deeply": (lambda n: "(" * n + "a" + "{0,9})" * n, (3, 6, 12, 100)),
        "starred_deeply": (lambda n: "(" * n + "a*" + ")*" * n, (5, 50, 400, 5_000)),
        "groups": (lambda n: "(" * n + "a" + ")" * n, (100, 450, 2_000, 100_000)),
        "optional": (lambda n: "a?" * n + "a" * n, (20, 200, 5_000)),
        "long": (lambda n: "abcdefghij" * (n // 10), (1_000, 50_000, 400_000)),
        "alternatives": (lambda n: "|".join(f"word{i * 7919 % 100003}" for i in range(n)), (100, 5_000, 30_000)),
        "alternatives_starred": (lambda n: "(" + "|".join(f"{i:b}" for i in range(n)) + ")*x", (64, 1_024, 8_192)),
        "alternatives_nested": (lambda n: "(a|" * n + "b" + ")" * n, (50, 400, 3_000)),
        "lookaheads": (lambda n: "".join(f"(?=.*{chr(97 + i % 26)})" for i in range(n)) + ".*", (3, 8, 12, 26, 200)),
        "negative_lookaheads": (lambda n: "".join(f"(?!.*{i}.{{3}}x)" for i in range(n)) + ".*", (3, 8, 20, 100)),
        "lookaheads_in_loops": (lambda n: f"((?=[^b]{{{n}}}).|(?!a.{{{n}}}b)b)*", (2, 8, 30, 200)),
        "lookbehinds": (lambda n: f"(.(?<![ab].{{{n}}})c?)*", (1, 6, 12, 100)),
        "boundaries": (lambda n: r"(\b\w+\b\W*\B?)" * n, (3, 30, 300)),
        "classes": (lambda n: r"[\w\W]\p{L}\P{Lu}(?i:[à-ÿ])" * n, (2, 20, 500)),
        "ranges": (lambda n: "[" + "".join(chr(0x400 + 2 * i) for i in range(n)) + "]{50}", (10, 500, 10_000)),
        "folded": (lambda n: "(?i)" + "straßeſKå" * n, (2, 50, 3_000)),
        "dots": (lambda n: ".?" * n, (50, 500, 20_000)),
        "words": (lambda n: rf"^(\S+\s+){{0,{n}}}\S+$", (20, 99, 2_000, 50_000)),
        "periods": (lambda n: "|".join(f"(a{{{p}}})*" for p in range(2, n)), (6, 12, 25, 60)),
        "bounds": (lambda n: f"a{{{n}}}", (2**15, 2**31, 2**32, 2**64, 10**40)),
        "escapes": (lambda n: r"\u{1F600}\x41\cA" * n, (5, 5_000)),
        "empty_loops": (lambda n: "(()*|(a*)*|(b?)+)*" * n, (1, 30, 500)),
        "backreferences": (lambda n: "(a*)" * n + rf"\{n}", (1, 9)),
    }
    for name, (make, sizes) in families.items():
        for size in sizes:
            yield f"{name}-{size}", partial(make, size)
