"""Every sequence ever fed, to say how much of a new prompt the model has seen before.

A path-compressed radix tree over int32 elements, apart from the records: it is not shrunk when they are evicted, so
the difference between its answer and what can be restored is what the cache lost. Used by the engine thread only.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .keys import Ids, ImageHashes, elements


def common_prefix(a: Ids, b: Ids) -> int:
    """How many leading elements two int32 arrays share."""
    n = min(a.size, b.size)
    differs = a[:n] != b[:n]
    first = int(differs.argmax()) if n else 0
    return first if n and differs[first] else n


class _Node:
    """A run of elements, and what followed it, by first element."""

    __slots__ = ("children", "run")

    def __init__(self, run: Ids) -> None:
        self.run = run
        self.children: dict[int, _Node] = {}


class SequenceTrie:
    """All sequences of one namespace. `nodes` counts runs, `bytes` the memory of their elements."""

    def __init__(self) -> None:
        self._root = _Node(np.empty(0, dtype=np.int32))
        self.nodes = 0
        self.bytes = 0

    def longest_match(self, ids: Ids, image_hashes: ImageHashes = ()) -> int:
        """The longest common prefix, in positions, of `ids` with any sequence added."""
        _, _, matched = self._descend(elements(ids, image_hashes))
        return matched

    def add(self, ids: Ids, image_hashes: ImageHashes = ()) -> None:
        """Remember a sequence. Its elements are copied; what is already known costs nothing."""
        new = elements(ids, image_hashes)
        node, inside, matched = self._descend(new)
        rest = new[matched:]
        if not rest.size:
            return
        if inside < node.run.size:
            self._split(node, inside)
        elif not node.children and node is not self._root:
            # A sequence that grows stays one run.
            node.run = np.concatenate([node.run, rest])
            self.bytes += rest.nbytes
            return
        self._attach(node, rest.copy())
        self.bytes += rest.nbytes

    def _descend(self, ids: Ids) -> tuple[_Node, int, int]:
        """Follow `ids`: the last node reached, elements matched inside its run, elements matched in all."""
        node, inside, matched = self._root, 0, 0
        while inside == node.run.size and matched < ids.size:
            child = node.children.get(int(ids[matched]))
            if child is None:
                break
            inside = common_prefix(child.run, ids[matched:])
            node, matched = child, matched + inside
        return node, inside, matched

    def _split(self, node: _Node, at: int) -> None:
        """Make the run end at `at`; what came after becomes its only child."""
        tail = _Node(node.run[at:].copy())
        tail.children = node.children
        node.run = node.run[:at].copy()
        node.children = {int(tail.run[0]): tail}
        self.nodes += 1

    def _attach(self, node: _Node, run: Ids) -> None:
        node.children[int(run[0])] = _Node(run)
        self.nodes += 1

    def _walk(self) -> Iterator[_Node]:
        waiting = list(self._root.children.values())
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.children.values())

    def check(self) -> None:
        """Raise AssertionError at the first broken rule of the tree or its counts."""
        nodes = total = 0
        assert not self._root.run.size, "trie: the root holds elements"
        for node in self._walk():
            nodes += 1
            total += node.run.nbytes
            assert node.run.size, "trie: an empty run"
            assert len(node.children) != 1, "trie: a run that should be one with its only child"
            for first, child in node.children.items():
                assert first == int(child.run[0]), "trie: a child under another first element"
        assert nodes == self.nodes, f"trie: {nodes} nodes, {self.nodes} counted"
        assert total == self.bytes, f"trie: {total} bytes, {self.bytes} counted"
