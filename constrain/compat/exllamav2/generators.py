"""The generators as programs for exllamav2 know them."""

from __future__ import annotations

from constrain import generator as native
from constrain.compat.exllamav2.filters import takes_filters


class ExLlamaV2BaseGenerator(native.ExLlamaV2BaseGenerator):
    """:class:`constrain.generator.ExLlamaV2BaseGenerator`, with filters of other packages."""

    generate_simple = takes_filters(native.ExLlamaV2BaseGenerator.generate_simple)
