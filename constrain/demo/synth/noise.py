"""Text around the content of a document: greetings, signatures, headers, footers, remarks."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from constrain.demo.synth import pools
from constrain.demo.synth.kinds import Value

_GREETINGS = (
    "Hi,",
    "Hello,",
    "Dear all,",
    "Dear colleagues,",
    "Good morning,",
    "Hi team,",
    "To whom it may concern,",
    "Hey!",
)
_CLOSINGS = ("Best regards,", "Kind regards,", "Thanks,", "Yours sincerely,", "Cheers,", "Best,", "Many thanks,", "BR")


def wrap(text: str, values: Sequence[Value], rng: Random) -> str:
    """Surround a text, half the time, with text that is irrelevant to any schema, and sometimes break its lines.

    Args:
        values: the values that stand in the text; they stay on one line.
    """
    text = _surrounded(text, rng)
    form = rng.random()
    if form < 0.12:
        text = _broken(text, places(text, values), rng.randint(38, 84))
    elif form < 0.16:
        text = text.replace("\n", "\n\n")
    elif form < 0.19:
        text = text.replace(". ", ".  ")
    return _with_margins(text, rng) if rng.random() < 0.08 else text


def _surrounded(text: str, rng: Random) -> str:
    form = rng.random()
    if form < 0.5:
        return text
    if form < 0.53:
        return _buried(text, rng)
    if form < 0.62:
        return f"{rng.choice(_GREETINGS)}\n\n{text}\n\n{rng.choice(_CLOSINGS)}\n{pools.first_name(rng)}"
    if form < 0.69:
        return f"{pools.filler(rng)}\n\n{text}"
    if form < 0.78:
        return f"{text}\n\n{pools.filler(rng)}"
    if form < 0.84:
        return f"{pools.filler(rng)} {pools.filler(rng)}\n{text}\n{pools.filler(rng)}"
    if form < 0.9:
        return f"{text}\n\n{rng.choice(_CLOSINGS)}\n{_signature(rng)}"
    if form < 0.93:
        rule = rng.choice(["-", "=", "*", "~", "_"]) * rng.randint(5, 40)
        return f"{rule}\n{text}\n{rule}"
    if form < 0.96:
        return "\n".join(f"> {line}" for line in text.split("\n"))
    return f"\n{text}\n"


def _signature(rng: Random) -> str:
    lines = [f"{pools.first_name(rng)} {pools.last_name(rng)}", rng.choice(pools.words("jobs")).title()]
    lines += [f"Tel. {pools.phone(rng)}", pools.email(rng), pools.url(rng), f"{pools.street(rng)}, {pools.city(rng)}"]
    lines = [lines[0], *rng.sample(lines[1:], rng.randint(1, 3))]
    if rng.random() < 0.4:
        lines += ["", rng.choice(_DISCLAIMERS)]
    return "\n".join(lines)


_DISCLAIMERS = (
    "This e-mail and any attachments are confidential and intended for the addressee only.",
    "Please consider the environment before printing this message.",
    "If you have received this message in error, please delete it and let the sender know.",
    "Registered office and commercial register number on request.",
    "Sent from my phone",
    "You receive this message because you are registered with us. Unsubscribe at any time.",
)


def _with_margins(text: str, rng: Random) -> str:
    """Add what surrounds the text of a page: running heads, page numbers, leftovers of markup."""
    head = rng.choice(["Page 1 of 3", "CONFIDENTIAL", "- 2 -", "DRAFT", "Copy", "&nbsp;", "<html><body>", "1/1", ""])
    foot = rng.choice(["Page 1", "[1]", "</body></html>", "E&OE", "Printed on recycled paper", "*** end ***", ""])
    return "\n".join(part for part in (head, text, foot) if part)


Places = list[tuple[int, int]]


def places(text: str, values: Sequence[Value]) -> Places:
    """Find the places of the texts of values, and of the values in lists and tables."""
    found: Places = []
    for value in values:
        if isinstance(value.data, list):
            entries = [each for item in value.data for each in (item.values() if isinstance(item, dict) else [item])]
            found += places(text, [entry for entry in entries if isinstance(entry, Value)])
        found += _occurrences(value.text, text) if value.text else []
    return found


def _occurrences(part: str, text: str) -> Places:
    found: Places = []
    at = text.find(part)
    while at >= 0:
        found.append((at, at + len(part)))
        at = text.find(part, at + len(part))
    return found


def _broken(text: str, kept: Places, width: int) -> str:
    """Break lines after at most about ``width`` characters, at spaces outside of ``kept``."""
    inside = {at for start, end in kept for at in range(start, end)}
    out, column = list(text), 0
    for at, char in enumerate(text):
        column = 0 if char == "\n" else column + 1
        if char == " " and column > width - 8 and at not in inside:
            out[at], column = "\n", 0
    return "".join(out)


def _buried(text: str, rng: Random) -> str:
    """Put a text between long passages."""
    before, after = (" ".join(pools.filler(rng) for _ in range(rng.randint(0, 25))) for _ in range(2))
    return "\n\n".join(part for part in (before, text, after) if part)
