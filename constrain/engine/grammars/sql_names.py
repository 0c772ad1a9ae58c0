"""Names in SQL."""

from __future__ import annotations

import re

#: Words that cannot be names without quotation marks, in SQLite or other databases.
_RESERVED = frozenset(
    """
    abort action add after all alter always analyze and any as asc attach authorization autoincrement before begin
    between both by cascade case cast check collate column commit conflict constraint create cross current
    current_date current_time current_timestamp database default deferrable deferred delete desc detach distinct do
    drop each else end escape except exclude exclusive exists explain fail false fetch filter first following for
    foreign from full generated glob grant group groups having if ignore immediate in index indexed initially inner
    insert instead intersect into is isnull join key last lateral leading left like limit match materialized natural
    no not nothing notnull null nulls of offset on only or order others outer over partition plan pragma preceding
    primary query raise range recursive references regexp reindex release rename replace restrict returning right
    rollback row rows savepoint select session_user set some symmetric table temp temporary then ties to trailing
    transaction trigger true unbounded union unique update user using vacuum values view virtual when where window
    with without
    """.split()
)


def quoted(name: str) -> str:
    """Return a name as SQL writes it, in quotation marks where it needs them."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name.lower() not in _RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'
