"""Arguments of a dynamic generator's ``generate``: those of each prompt."""

from __future__ import annotations

from typing import Any, TypeAlias

from constrain.arguments import check_count
from constrain.errors import GenerationError

#: A prompt, or under guidance a pair: with the condition and without it.
Prompt: TypeAlias = str | tuple[str, str]


def own_options(prompt: Prompt | list[Prompt], seed: int | None, **options: Any) -> list[tuple[Prompt, dict[str, Any]]]:
    """Return each prompt with its seed, and its value of each option: for a list of prompts, an entry of a list."""
    if seed is not None:
        check_count("seed", seed, minimum=None)
    prompts: list[Prompt] = prompt if isinstance(prompt, list) else [prompt]
    count = len(prompts)
    for name, value in options.items():
        is_shared = not isinstance(value, list) if name == "gen_settings" else not isinstance(prompt, list)
        if is_shared or value is None:
            options[name] = [value] * count
        elif not isinstance(value, (list, tuple)) or len(value) != count:
            raise GenerationError(f"{name} must be a list with an entry, or None, for each of the {count} prompts")
    options["seed"] = [None if seed is None else seed + number for number in range(count)]
    return [(each, {name: values[i] for name, values in options.items()}) for i, each in enumerate(prompts)]
