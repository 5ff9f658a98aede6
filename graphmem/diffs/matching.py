"""Which module of one report is which of the other.

The modules of each report are a tree, and the trees are walked together from the root. Of two
modules that match, the children match by these rules, the first that holds:

1. the same name and the same class;
2. renamed, in order of appearance, of those still without a partner: a subtree with the same
   names, classes and parameter counts (so ``layers.3.fc`` is ``blocks.3.fc``, where ``layers``
   was renamed to ``blocks``); else one with the same names and classes; else the only one left
   of its class on each side;
3. the same name and another class: if a child of the one has the other's class, names and
   parameter counts, it was wrapped, or unwrapped (as by an adapter); else it was replaced.

Children that are all numbers (of a Sequential, a ModuleList) are matched as lines of text are
by ``diff``, in order: equal subtrees first, then, between those, subtrees with the same names
and classes, then those of the same class, then, where as many are left on both sides, one by
one. So a layer that is put in
between is new, and those behind it are renamed, not replaced.

What then has no partner is moved, if it has parameters and anywhere in the other tree a subtree
without a partner has the same names, classes and parameter counts: the first of the same name,
else the first. All else is new or gone. Sizes of outputs decide nothing: they change with the
batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from graphmem.diffs.tree import Forest, Node
from graphmem.report import Layer

Pair = tuple[Node, Node]


@dataclass(frozen=True, slots=True)
class Matched:
    """Rows of the two reports that are one module; None where the module is new or gone.

    ``moved`` is true where the parent is another one; a renamed parent is not.
    """

    before: Layer | None
    after: Layer | None
    moved: bool


def match(base: tuple[Layer, ...], head: tuple[Layer, ...]) -> tuple[Matched, ...]:
    """Each row of both reports with its partner: in the order of ``head``, then what is gone."""
    forest = Forest()
    trees = (forest.plant(base), forest.plant(head))
    matching = _Matching()
    matching.walk(*trees)
    matching.find_moved(*trees)
    return tuple(matching.rows(*trees))


class _Matching:
    def __init__(self) -> None:
        self._head_of: dict[Node, Node] = {}
        self._base_of: dict[Node, Node] = {}
        self._moved: set[Node] = set()

    def walk(self, base: Node, head: Node) -> None:
        """Match two modules, and what is below them."""
        waiting = [(base, head)]
        while waiting:
            pair = waiting.pop()
            self._match(*pair)
            waiting.extend(_children(*pair))

    def find_moved(self, base: Node, head: Node) -> None:
        """Match what has no partner with its like anywhere else."""
        free: dict[int, list[Node]] = defaultdict(list)
        for node in head.below():
            if node not in self._base_of:
                free[node.alike].append(node)
        for node in base.below():
            if node.parameters == 0 or node in self._head_of:
                continue
            left = [other for other in free[node.alike] if other not in self._base_of]
            if left:
                partner = next((other for other in left if other.name == node.name), left[0])
                self._move(node, partner)

    def rows(self, base: Node, head: Node) -> Iterator[Matched]:
        for node in head.below():
            partner = self._base_of.get(node)
            before = None if partner is None else partner.layer
            if before is not None or node.layer is not None:
                yield Matched(before, node.layer, node in self._moved)
        for node in base.below():
            if node not in self._head_of and node.layer is not None:
                yield Matched(node.layer, None, False)

    def _match(self, base: Node, head: Node) -> None:
        self._head_of[base] = head
        self._base_of[head] = base

    def _move(self, base: Node, head: Node) -> None:
        """Match two subtrees that are alike, but for what has a partner already."""
        for one, other in zip(base.below(), head.below(), strict=True):
            if one not in self._head_of and other not in self._base_of:
                self._match(one, other)
                self._moved.add(other)


def _children(base: Node, head: Node) -> Iterator[Pair]:
    sides = [list(node.children.values()) for node in (base, head)]
    numbered = [[node for node in side if node.name.isdecimal()] for side in sides]
    named = [[node for node in side if not node.name.isdecimal()] for side in sides]
    yield from _by_name(*named)
    yield from _in_order(*numbered)


# -- children with names


def _by_name(base: list[Node], head: list[Node]) -> Iterator[Pair]:
    rules: tuple[Callable[[Sequence[Node], Sequence[Node]], list[Pair]], ...] = (
        lambda base, head: _equal(base, head, lambda node: (node.name, node.type)),
        lambda base, head: _equal(base, head, lambda node: node.alike),
        lambda base, head: _equal(base, head, lambda node: node.shaped),
        _only_ones,
        _replaced,
    )
    for rule in rules:
        found = rule(base, head)
        yield from found
        taken = {node for pair in found for node in pair}
        base = [node for node in base if node not in taken]
        head = [node for node in head if node not in taken]


def _replaced(base: Sequence[Node], head: Sequence[Node]) -> list[Pair]:
    """Those with the same name, or what one of them is wrapped into."""
    return [_unwrapped(*pair) for pair in _equal(base, head, lambda node: node.name)]


def _unwrapped(base: Node, head: Node) -> Pair:
    inner = next((node for node in head.children.values() if node.alike == base.alike), None)
    outer = next((node for node in base.children.values() if node.alike == head.alike), None)
    if inner is not None and base.parameters:
        return base, inner
    return (outer, head) if outer is not None and head.parameters else (base, head)


def _equal(base: Sequence[Node], head: Sequence[Node], key: Callable[[Node], object]) -> list[Pair]:
    """Those with the same key, in order."""
    free: dict[object, list[Node]] = defaultdict(list)
    for node in reversed(head):
        free[key(node)].append(node)
    return [(node, free[key(node)].pop()) for node in base if free[key(node)]]


def _only_ones(base: Sequence[Node], head: Sequence[Node]) -> list[Pair]:
    """Those that are alone of their class on each side."""
    first, second = _alone(base), _alone(head)
    return [(node, second[kind]) for kind, node in first.items() if kind in second]


def _alone(nodes: Sequence[Node]) -> dict[tuple[str, bool], Node]:
    """By class, and whether there is anything below: a container may have no row of its own."""
    found: dict[tuple[str, bool], list[Node]] = defaultdict(list)
    for node in nodes:
        found[node.type, bool(node.children)].append(node)
    return {kind: own[0] for kind, own in found.items() if len(own) == 1}


# -- children with numbers


def _in_order(base: Sequence[Node], head: Sequence[Node]) -> Iterator[Pair]:
    pairs: list[Pair] = []
    gaps = [(base, head)]
    keys: tuple[Callable[[Node], object], ...] = (
        lambda node: node.alike,
        lambda node: node.shaped,
        lambda node: node.type,
    )
    for key in keys:
        gaps = [inner for gap in gaps for inner in _aligned(*gap, key, pairs)]
    for left, right in gaps:
        if len(left) == len(right):
            pairs += zip(left, right, strict=True)
    yield from pairs


def _aligned(
    base: Sequence[Node],
    head: Sequence[Node],
    key: Callable[[Node], object],
    pairs: list[Pair],
) -> list[tuple[Sequence[Node], Sequence[Node]]]:
    """Add the pairs with the same key to ``pairs``; what is left between them.

    Beginnings and ends that are the same are set aside first: a long list that changed in one
    place takes no longer than it has items.
    """
    sides: tuple[list[Any], list[Any]] = ([*map(key, base)], [*map(key, head)])
    start = _common(*sides)
    end = _common(*(side[start:][::-1] for side in sides))
    stops = [len(side) - end for side in sides]
    pairs += zip(base[:start], head[:start], strict=True)
    pairs += zip(base[stops[0] :], head[stops[1] :], strict=True)
    base, head = base[start : stops[0]], head[start : stops[1]]
    one, other = (side[start:stop] for side, stop in zip(sides, stops, strict=True))
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    gaps = []
    for what, i, i_end, j, j_end in matcher.get_opcodes():
        if what == "equal":
            pairs += zip(base[i:i_end], head[j:j_end], strict=True)
        else:
            gaps.append((base[i:i_end], head[j:j_end]))
    return gaps


def _common(one: Sequence[object], other: Sequence[object]) -> int:
    """How many items both begin with."""
    unequal = (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(unequal, min(len(one), len(other)))
