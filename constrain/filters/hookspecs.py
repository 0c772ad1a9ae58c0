"""The hooks that a plugin of constrain may implement.

A plugin is a module (or another object) that an entry point of the group ``constrain.filters`` names, with functions
decorated by :data:`hookimpl`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pluggy

PROJECT = "constrain"

hookspec = pluggy.HookspecMarker(PROJECT)
#: Decorator that marks a function of a plugin as the implementation of the hook of the same name.
hookimpl = pluggy.HookimplMarker(PROJECT)

#: Called with the model, the tokenizer and a filter's own arguments; returns a filter.
FilterFactory: TypeAlias = Callable[..., Any]


@hookspec
def constrain_filters() -> Mapping[str, FilterFactory]:
    """Return the filters of the plugin: a factory for each name.

    The factory, usually the filter's class, is called as ``factory(model, tokenizer, **arguments)``. A plugin with a
    name that an earlier plugin has is skipped with an error.
    """
    raise NotImplementedError
