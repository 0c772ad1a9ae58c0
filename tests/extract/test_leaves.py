"""The leaves of JSON texts: values that hold no others, with their places."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from constrain.extract.leaves import find_leaves, marked

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=8,
)


def test_places() -> None:
    record = '{"a" :  [ 1, "x\\"]é", []], "bé": {"c":null,"d":{ }}}'.encode()
    leaves = find_leaves(record)
    assert [leaf.path for leaf in leaves] == [("a", 0), ("a", 1), ("a", 2), ("bé", "c"), ("bé", "d")]
    assert [leaf.text.decode() for leaf in leaves] == ["1", '"x\\"]é"', "[]", "null", "{ }"]
    assert b"".join(record[leaf.separator : leaf.separator + 1] for leaf in leaves) == b"[,,::"
    assert [leaf.is_number for leaf in leaves] == [True, False, False, False, False]


def test_a_text_that_is_one_leaf() -> None:
    (leaf,) = find_leaves(b' "x" ')
    assert (leaf.path, leaf.separator, leaf.start, leaf.end) == ((), 0, 1, 4)


@given(value=JSON, indent=st.none() | st.integers(0, 3))
def test_any_value(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass")
    leaves = find_leaves(text)
    assert all(text[leaf.start : leaf.end] == leaf.text for leaf in leaves)
    restored = marked(leaves, value)

    def read(node: Any) -> Any:
        if isinstance(node, dict):
            return {name: read(child) for name, child in node.items()}
        return [read(child) for child in node] if isinstance(node, list) else json.loads(leaves[int(node)].text)

    assert read(restored) == value
