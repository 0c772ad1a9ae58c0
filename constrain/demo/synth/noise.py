"""Text around the content of a document: greetings, signatures, headers, footers, remarks."""

from __future__ import annotations

from random import Random

from constrain.demo.synth import pools

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


def wrap(text: str, rng: Random) -> str:
    """Surround a text, half the time, with text that is irrelevant to any schema."""
    form = rng.random()
    if form < 0.46:
        return text
    if form < 0.5:
        return _buried(text, rng)
    if form < 0.62:
        return f"{rng.choice(_GREETINGS)}\n\n{text}\n\n{rng.choice(_CLOSINGS)}\n{pools.first_name(rng)}"
    if form < 0.7:
        return f"{pools.filler(rng)}\n\n{text}"
    if form < 0.82:
        return f"{text}\n\n{pools.filler(rng)}"
    if form < 0.9:
        return f"{pools.filler(rng)} {pools.filler(rng)}\n{text}\n{pools.filler(rng)}"
    if form < 0.94:
        rule = rng.choice(["-", "=", "*", "~", "_"]) * rng.randint(5, 40)
        return f"{rule}\n{text}\n{rule}"
    if form < 0.97:
        return "\n".join(f"> {line}" for line in text.split("\n"))
    return f"\n{text}\n"


def _buried(text: str, rng: Random) -> str:
    """Put a text between long passages."""
    before, after = (" ".join(pools.filler(rng) for _ in range(rng.randint(0, 25))) for _ in range(2))
    return "\n\n".join(part for part in (before, text, after) if part)
