"""The flags of exllamav2's attention module, as in an installation without flash-attn and xformers."""

from __future__ import annotations

has_flash_attn = False
has_flash_attn_with_paged = False
has_flash_attn_with_window = False
has_flash_attn_with_softcap = False
has_xformers = False
has_lower_right_sdpa = True


def assert_paged_attn() -> None:
    """Report that flash-attn is missing.

    Raises:
        AssertionError: always. The dynamic generator has paged attention nevertheless.
    """
    raise AssertionError("flash-attn is not installed; paged attention here does not need it")
