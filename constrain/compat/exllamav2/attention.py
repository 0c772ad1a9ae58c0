"""What programs ask of exllamav2's attention: the answers of an installation without flash-attn and xformers."""

from __future__ import annotations

has_flash_attn = False
has_flash_attn_with_paged = False
has_flash_attn_with_window = False
has_flash_attn_with_softcap = False
has_xformers = False
has_lower_right_sdpa = True


def assert_paged_attn() -> None:
    """Say that there is no flash-attn, to programs that would rather do without paging then.

    Raises:
        AssertionError: always. The dynamic generator pages without flash-attn all the same.
    """
    raise AssertionError("flash-attn is not installed; paged attention here does not need it")
