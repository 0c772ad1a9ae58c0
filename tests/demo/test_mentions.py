"""People and firms that documents name again by a part of their names."""

from __future__ import annotations

from random import Random

from constrain.demo.synth.kinds import Value
from constrain.demo.synth.mentions import mentioned_again
from constrain.demo.synth.slots import Slot
from constrain.demo.synth.specs import parse_kind

TEXT = "The hall was let to Ada Byron of Kestrel Marine Ltd.\nShe signed on Monday. The keys lie with the porter."
SLOTS = [Slot("who", parse_kind("person"), ("tenant",)), Slot("firm", parse_kind("company"), ("firm",))]
FACTS = {"who": Value("Ada Byron", ("Ada", "Byron")), "firm": Value("Kestrel Marine Ltd")}


def test_parts_of_names_are_added_and_the_names_stay() -> None:
    texts = [mentioned_again(TEXT, SLOTS, FACTS, Random(seed)) for seed in range(200)]
    assert all("Ada Byron" in text and "Kestrel Marine Ltd" in text for text in texts)
    added = [text.replace("Ada Byron", "").replace("Kestrel Marine Ltd", "") for text in texts]
    assert all(any(part in text for part in ("Ada", "Byron", "Kestrel")) for text in added)
    assert sum(text.endswith(("\nAda", "\nByron")) for text in texts) > 20
    assert sum(text.index("The hall") > 0 for text in texts) > 10


def test_texts_without_names_stay_as_they_are() -> None:
    assert mentioned_again(TEXT, SLOTS, {}, Random(1)) == TEXT
    assert mentioned_again(TEXT, SLOTS[1:], {"firm": Value("Kestrel")}, Random(1)) == TEXT
