"""Sizes of the free dimensions of an ONNX model's inputs, from what the user says.

1. ``--dim NAME=N`` gives a named dimension; NAME may be the whole text of a computed one.
2. ``--input [NAME=]SHAPE`` gives the dimensions of one input.
3. ``--batch N`` gives the first dimension of the inputs where it is free: all those without a
   name, and the one name that they share. Of several names those count that say "batch".
4. ``--seq N`` gives the first free dimension after the first, without a name or of the name
   that it has in the first such input.
5. ``2*batch`` follows from ``batch``, and ``batch`` from ``2*batch``.
6. ``--default-dim N`` gives all that are left.

What is still missing is listed in one error, and what contradicts itself is refused.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping

from graphmem.errors import InputError, shown
from graphmem.options import nearest
from graphmem.sources.onnx.expressions import is_expression, names_in, solved, value_of
from graphmem.sources.onnx.model import Dim

Place = tuple[int, int]
"""An input and a position in its shape."""

_BATCH_NAMES = ("n", "b", "bs")
_EXAMPLES = {"batch": 8, "seq": 128, "len": 128}
_EXAMPLE = 64
_MOST_LISTED = 10


class FreeDims:
    """The free dimensions of a model's inputs.

    Args:
        subject: the model's file, for messages.
        names: the inputs' names.
        shapes: theirs in the file, None for those that have none.
        others: texts of dimensions of other values, which ``--dim`` may name too.
    """

    def __init__(
        self,
        subject: str,
        names: tuple[str, ...],
        shapes: tuple[tuple[Dim, ...] | None, ...],
        others: Iterable[str] = (),
    ) -> None:
        self._subject = subject
        self._names = names
        self._shapes = shapes
        self._known = {n for text in (*self._texts(), *others) for n in (text, *names_in(text))}
        self._said: dict[str, str] = {}
        self._unnamed: dict[Place, int] = {}
        self._given: set[int] = set()
        self.sizes: dict[str, int] = {}

    def _texts(self) -> Iterator[str]:
        yield from (dim for _, dim in self._places() if isinstance(dim, str))

    def _places(self) -> Iterator[tuple[Place, Dim]]:
        for index, shape in enumerate(self._shapes):
            for position, dim in enumerate(shape or ()):
                yield (index, position), dim

    # -- what the user says

    def dim(self, text: str) -> None:
        """``NAME=N`` of ``--dim``.

        Raises:
            InputError: it can't be read, or no dimension has this name; as below.
        """
        name, _, size = text.rpartition("=")
        if not name or not size.isdecimal() or not size.isascii() or len(size) > 18:
            raise InputError(f"--dim {shown(text)}: write NAME=N, such as batch=8")
        if name not in self._known:
            close = nearest(name, self._known)
            free = ", ".join(sorted(self._known)[:_MOST_LISTED]) or "none"
            hint = close or f"; the free dimensions are: {free}"
            raise InputError(f"--dim {text}: {self._subject} has no dimension {shown(name)}{hint}")
        self._bind(name, int(size), f"--dim {text}")

    def input(self, index: int, shape: tuple[int, ...], option: str) -> None:
        """The shape that the user gives an input.

        Args:
            option: how the user said it.
        """
        self._given.add(index)
        own = self._shapes[index]
        if own is None:
            return
        if len(own) != len(shape):
            raise InputError(
                f"{option}: input {shown(self._names[index])} has {len(own)} dimensions "
                f"({_as_shape(own)}), not {len(shape)}"
            )
        for position, (dim, size) in enumerate(zip(own, shape, strict=True)):
            if isinstance(dim, int) and dim != size:
                raise InputError(
                    f"{option}: dimension {position} of {shown(self._names[index])} is fixed to "
                    f"{dim} in the file, not {size}"
                )
            if isinstance(dim, str):
                self._bind(dim, size, option)
            elif dim is None:
                self._unnamed[index, position] = size

    def batch(self, size: int) -> None:
        """The size of ``--batch``."""
        option = f"--batch {size}"
        firsts = [(place, dim) for place, dim in self._places() if place[1] == 0]
        free = [(p, d) for p, d in firsts if not isinstance(d, int) and p[0] not in self._given]
        names = list(dict.fromkeys(d for _, d in free if d is not None and not is_expression(d)))
        if len(names) > 1:
            named = [n for n in names if "batch" in n.lower() or n.lower() in _BATCH_NAMES]
            if not named:
                listed = ", ".join(map(shown, names[:_MOST_LISTED]))
                raise InputError(f"{option}: which of {listed} is the batch? give it with --dim")
            names = named
        unnamed = [place for place, dim in free if dim is None]
        if not names and not unnamed:
            self._check_batch(option, size, firsts)
        for name in names:
            self._bind(name, size, option)
        self._unnamed.update(dict.fromkeys(unnamed, size))

    def _check_batch(self, option: str, size: int, firsts: list[tuple[Place, Dim]]) -> None:
        """Refuse a batch that no free dimension can have, unless it is the file's own."""
        sizes = [self._size(place, dim) for place, dim in firsts]
        if size in sizes:
            return
        what = "no input has a dimension"
        if firsts:
            what = f"the first dimension of {shown(self._names[firsts[0][0][0]])} is {sizes[0]}"
        raise InputError(
            f"{option}: {self._subject}: {what}; export it with a dynamic batch, or leave it out"
        )

    def seq(self, size: int) -> None:
        """The size of ``--seq``."""
        firsts: dict[int, tuple[Place, str | None]] = {}
        for place, dim in self._places():
            if place[1] == 0 or isinstance(dim, int) or self._size(place, dim) is not None:
                continue
            if place[0] not in self._given:
                firsts.setdefault(place[0], (place, dim))
        name = next((dim for _, dim in firsts.values() if dim is not None), None)
        if not firsts:
            raise InputError(
                f"--seq {size}: no input of {self._subject} has a free dimension after the first; "
                "leave it out"
            )
        if name is not None:
            self._bind(name, size, f"--seq {size}")
        self._unnamed.update((place, size) for place, dim in firsts.values() if dim is None)

    def _bind(self, text: str, size: int, said: str) -> None:
        if self.sizes.get(text, size) != size:
            raise InputError(
                f"dimension {shown(text)} is {self.sizes[text]} by {self._said[text]} "
                f"and {size} by {said}"
            )
        self.sizes[text] = size
        self._said.setdefault(text, said)

    # -- what follows

    def finish(self, default: int | None) -> None:
        """Work out computed dimensions, and give ``default`` to all that are left.

        Raises:
            InputError: a dimension is missing, or has two sizes.
        """
        self._solve()
        if default is not None:
            for name in [n for text in self._texts() for n in names_in(text)]:
                self.sizes.setdefault(name, default)
            for place, dim in self._places():
                if dim is None:
                    self._unnamed.setdefault(place, default)
        self._check_computed()
        self._check_missing()

    def _solve(self) -> None:
        """Find the names in computed dimensions whose size is known, until none is left."""
        texts = [text for text in self.sizes if is_expression(text)]
        found = True
        while found:
            found = False
            for text in texts:
                answer = solved(text, self.sizes[text], self.sizes)
                if answer is not None and answer[0] not in self.sizes:
                    self._bind(*answer, self._said[text])
                    found = True

    def _check_computed(self) -> None:
        plain = {name: size for name, size in self.sizes.items() if not is_expression(name)}
        for text in filter(is_expression, dict.fromkeys((*self._texts(), *self.sizes))):
            names = names_in(text)
            if any(name not in plain for name in names):
                continue
            value, told = value_of(text, plain), self.sizes.get(text)
            where = ", ".join(f"{name}={plain[name]}" for name in names)
            if told is not None and value != told:
                raise InputError(
                    f"dimension {shown(text)} is {told} by {self._said[text]}, "
                    f"but {value if value is not None else 'no whole number'} with {where}"
                )
            if value is None or value < 0:
                raise InputError(f"dimension {shown(text)} has no whole size with {where}")

    def _check_missing(self) -> None:
        names: dict[str, str] = {}
        unnamed: dict[int, list[int]] = {}
        for (index, position), dim in self._places():
            if isinstance(dim, int) or self._size((index, position), dim) is not None:
                continue
            if dim is None:
                unnamed.setdefault(index, []).append(position)
                continue
            for name in names_in(dim):
                if name not in self.sizes:
                    of = f"dimension {position} of {shown(self._names[index])}"
                    names.setdefault(name, f"{shown(name)} ({of})")
        if names or unnamed:
            raise InputError(self._missing(names, unnamed))

    def _missing(self, names: Mapping[str, str], unnamed: Mapping[int, list[int]]) -> str:
        """One line that lists what is missing, and how to say it."""
        listed = list(names.values())
        for index, positions in unnamed.items():
            which = " and ".join(map(str, positions))
            listed.append(f"dimension {which} of {shown(self._names[index])} (without a name)")
        more = len(listed) - _MOST_LISTED
        tail = f" and {more} more" if more > 0 else ""
        options = [f"--dim {shlex.quote(f'{_short(n)}={_example(n)}')}" for n in names]
        options += [
            f"--input {shlex.quote(f'{_short(self._names[i])}={self._example_shape(i)}')}"
            for i in unnamed
        ]
        if more > 0:
            options = [f"--default-dim {_EXAMPLE}"]
        return (
            f"{self._subject}: sizes are missing: {', '.join(listed[:_MOST_LISTED])}{tail}; "
            f"give them, as in: graphmem analyze {shlex.quote(self._subject)} {' '.join(options)}"
            f"{'' if more > 0 else f' (or --default-dim {_EXAMPLE} for all)'}"
        )

    def _example_shape(self, index: int) -> str:
        shape = self._shapes[index] or ()
        sizes = [self._size((index, at), dim) for at, dim in enumerate(shape)]
        return "x".join(
            str(size if size is not None else _example(str(dim or ("" if at else "batch"))))
            for at, (size, dim) in enumerate(zip(sizes, shape, strict=True))
        )

    def _size(self, place: Place, dim: Dim) -> int | None:
        if isinstance(dim, int):
            return dim
        return self._unnamed.get(place) if dim is None else value_of(dim, self.sizes)

    def shape(self, index: int) -> tuple[int, ...]:
        """The shape of an input whose dimensions are all known."""
        sizes = [self._size((index, at), dim) for at, dim in enumerate(self._shapes[index] or ())]
        return tuple(size for size in sizes if size is not None)


def _example(name: str) -> int:
    lowered = name.lower()
    return next((size for part, size in _EXAMPLES.items() if part in lowered), _EXAMPLE)


def _short(name: str) -> str:
    return name if len(name) <= 80 else "NAME"


def _as_shape(shape: tuple[Dim, ...]) -> str:
    return "x".join("?" if dim is None else _short(str(dim)) for dim in shape)
