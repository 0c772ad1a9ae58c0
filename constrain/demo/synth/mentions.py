"""People and firms that a document names again by a part of their names, as in a greeting or below a letter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from constrain.demo.synth import implied, noise
from constrain.demo.synth.kinds import Person, Text, Value
from constrain.demo.synth.slots import Slot


def mentioned_again(text: str, slots: Sequence[Slot], facts: Mapping[str, Value], rng: Random) -> str:
    """Put a part of a name that the text has whole into a sentence before, between or after its own."""
    named = [(slot, facts[slot.key]) for slot in slots if slot.key in facts and _part(slot, facts[slot.key], rng)]
    if not named:
        return text
    slot, value = rng.choice(named)
    part = _part(slot, value, rng)
    if value.text not in text or not part:
        return text
    form = rng.random()
    if isinstance(slot.kind, Person) and form < 0.35:
        return f"{text}\n\n{rng.choice(_CLOSINGS)}\n{part}"
    if isinstance(slot.kind, Person) and form < 0.55:
        return f"{rng.choice(_GREETINGS)} {part}{rng.choice([',', ',', '!', ' -'])}\n\n{text}"
    sentence = rng.choice(_OF_PEOPLE if isinstance(slot.kind, Person) else _OF_FIRMS).format(part)
    long = [value for value in facts.values() if not value.text.isalnum()]
    return implied.woven(text, [sentence], noise.places(text, long), rng)


def _part(slot: Slot, value: Value, rng: Random) -> str:
    """Return a part of the name of a person or firm; nothing for other values, and names of one word."""
    if isinstance(slot.kind, Person) and isinstance(value.data, tuple):
        return str(rng.choice([value.data[0], value.data[0], value.data[-1]]).split(" ")[0])
    if isinstance(slot.kind, Text) and slot.kind.name == "company" and " " in value.text:
        return value.text.split(" ")[0]
    return ""


_CLOSINGS = (
    "Thanks",
    "Best,",
    "Cheers,",
    "Regards",
    "All the best",
    "Yours,",
    "Kind regards",
    "LG",
    "Bye",
    "Many thanks,",
)
_GREETINGS = ("Hi", "Hello", "Dear", "Hey", "Good morning", "Ciao", "Hallo", "Dear colleagues, dear")
_OF_PEOPLE = (
    "Ask {} if anything is unclear.", "{} knows about it.", "I have told {} already.", "{} was here this morning.",
    "More from {} next week.", "As {} says, patience.", "The desk of {} is next to the door.", "{} sends greetings.",
    "(Thanks, {}!)", "Nobody but {} has the key.", "cc {}", "{} will be away on Friday.",
)  # fmt: skip
_OF_FIRMS = (
    "{} has been told.", "The people at {} are friendly.", "We have heard nothing from {} since.", "{} did not answer.",
    "It is not the first time with {}.", "A van of {} stood outside.", "Somebody from {} rang.",
)  # fmt: skip
