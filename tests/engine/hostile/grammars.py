"""Lark grammars that are small to write and large to compile or to follow, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial


def sources() -> Iterator[tuple[str, Callable[[], str]]]:
    """Every grammar, by name; each is made when it is called for."""
    families: dict[str, tuple[Callable[[int], str], tuple[int, ...]]] = {
        "ambiguous": (lambda n: f'start: {"start " * n}| "a"', (2, 3, 10, 60)),
        "ambiguous_operators": (
            lambda n: "start: " + " | ".join(f'start "{op}" start' for op in "+-*/^%<>"[:n]) + ' | "1"',
            (2, 8),
        ),
        "chain": (
            lambda n: "start: r0\n" + "\n".join(f'r{i}: r{i + 1} "x" | r{i + 1}' for i in range(n)) + f'\nr{n}: "y"',
            (10, 300, 3_000),
        ),
        "left_cycle": (
            lambda n: "start: r0\n" + "\n".join(f'r{i}: r{(i + 1) % n} "{i % 10}" | "z"' for i in range(n)),
            (3, 40, 400),
        ),
        "right_cycle": (
            lambda n: "start: r0\n" + "\n".join(f'r{i}: "{i % 10}" r{(i + 1) % n} | "z"' for i in range(n)),
            (3, 400, 3_000),
        ),
        "hidden_left": (
            lambda n: (
                "start: r0\n" + "\n".join(f'r{i}: e r{(i + 1) % n} "{i % 10}" | "z"' for i in range(n)) + '\ne: "q"?'
            ),
            (3, 40, 200),
        ),
        "unit_cycle": (
            lambda n: "start: r0\n" + "\n".join(f"r{i}: r{(i + 1) % n} | r{i * 7 % n}" for i in range(n)) + ' | "a"',
            (2, 50, 500),
        ),
        "nullable": (lambda n: "start: " + "e " * n + '\ne: "a"? "b"? |', (3, 30, 200)),
        "doubling": (
            lambda n: "start: r0\n" + "\n".join(f"r{i}: r{i + 1} r{i + 1}" for i in range(n)) + f'\nr{n}: "a"',
            (5, 30, 62, 70, 300),
        ),
        "doubling_optional": (
            lambda n: "start: r0\n" + "\n".join(f"r{i}: r{i + 1}? r{i + 1}?" for i in range(n)) + f'\nr{n}: "a"',
            (5, 14, 40),
        ),
        "repeated": (lambda n: f'start: ("a" "b"?)~1..{n}', (10, 1_000, 50_000, 10**9)),
        "repeated_deeply": (lambda n: "start: " + "(" * n + '"a"' + "~0..9)" * n, (2, 4, 8, 40)),
        "repeated_terminal": (lambda n: f'start: A\nA: (/a|b/ "c"?)~{n}', (50, 5_000, 300_000)),
        "parentheses": (lambda n: "start: " + "(" * n + '"a"' + ")" * n, (20, 150, 2_000)),
        "brackets": (lambda n: "start: " + "[" * n + '"a"' + "]" * n, (8, 20, 150)),
        "alternatives": (lambda n: "start: " + " | ".join(f'"w{i * 7919 % 100003}"' for i in range(n)), (100, 3_000)),
        "terminals": (
            lambda n: (
                "start: ("
                + "|".join(f"T{i}" for i in range(n))
                + ")*\n"
                + "\n".join(f"T{i}: /[a-{chr(98 + i % 24)}]+{i % 10}?/" for i in range(n))
            ),
            (5, 60, 500),
        ),
        "terminals_that_overlap": (
            lambda n: (
                "start: ("
                + " ".join(f"T{i}" for i in range(n))
                + ")+\n"
                + "\n".join(f'T{i}: /[a-z]*/ "x"' for i in range(n))
            ),
            (3, 30, 300),
        ),
        "ignored": (
            lambda n: "start: W+\nW: /[a-z]+/\n" + "\n".join(f"%ignore /[ \\t]{{1,{i + 1}}}/" for i in range(n)),
            (1, 5, 30),
        ),
        "ignored_text": (lambda n: f"start: W+\nW: /[a-z]{{1,{n}}}/\n%ignore /[a-f ]+/", (2, 20, 500)),
        "subsets": (lambda n: f"start: A+\nA: /(a|b)*a(a|b){{{n}}}/", (6, 14, 40)),
        "leftmost": (lambda n: f"start: A\nA: /{'|'.join('a' * i + 'b?' for i in range(1, n))}/", (5, 60, 400)),
        "templates": (lambda n: f'start: t{{{"t{" * n}"a"{"}" * n}}}\nt{{x}}: x x', (2, 12, 60)),
        "templates_growing": (lambda n: 'start: t{"a"}\nt{x}: x | t{("a" x)}' + " " * n, (0,)),
        "terminal_cycle": (lambda n: "start: A0\n" + "\n".join(f'A{i}: A{(i + 1) % n} "a"' for i in range(n)), (1, 5)),
        "long_string": (lambda n: f'start: "{"abcde" * n}"', (100, 20_000)),
        "json_like": (
            lambda n: (
                "start: v\nv: "
                + " | ".join(f'"{{" "k{i}" ":" v "}}"' for i in range(n))
                + ' | "[" [v ("," v)*] "]" | /[0-9]+/'
            ),
            (5, 200),
        ),
    }
    for name, (make, sizes) in families.items():
        for size in sizes:
            yield f"{name}-{size}", partial(make, size)
