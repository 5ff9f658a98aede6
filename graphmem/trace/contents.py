"""An object's attributes and the containers in them, kept to be put back as they were.

The same containers get their contents again, all the way down. A container may be of a class that
refuses to be written, or does more when it is (a frozen dictionary, a counter): it is read and
written by the methods of the built-in type below its class.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any


class _Copied:
    """A container and a copy of its contents, to be put back into the same object."""

    __slots__ = ("_is_back", "container", "contents")

    def __init__(self, container: Any) -> None:
        self.container = container
        self.contents: Any = None
        self._is_back = False

    def put_back(self) -> Any:
        """The container, with its contents as they were; one that holds itself too."""
        if not self._is_back:
            self._is_back = True
            _fill(self.container, self.contents)
        return self.container


class _Empty:
    """A container that was empty, to be emptied again."""

    __slots__ = ("container",)

    def __init__(self, container: Any) -> None:
        self.container = container

    def put_back(self) -> Any:
        """The container, empty."""
        if self.container:
            _built_in(self.container).clear(self.container)
        return self.container


def attributes_of(attributes: dict[str, Any]) -> dict[str, Any]:
    """A copy of an object's attributes and, all the way down, of the containers in them."""
    seen: dict[int, _Copied] = {}
    return {name: _copied(value, seen) for name, value in attributes.items()}


def put_back(attributes: dict[Any, Any], saved: dict[Any, Any]) -> None:
    """Give an object's attributes, or a dictionary, what it had.

    Args:
        attributes: what is written; a dictionary of any class.
        saved: of ``attributes_of``.
    """
    originals = {name: _original(value) for name, value in saved.items()}
    kind = _built_in(attributes)
    kind.clear(attributes)
    for name, value in originals.items():
        kind.__setitem__(attributes, name, value)


def _built_in(container: Any) -> Any:
    """The built-in type of a container; an OrderedDict keeps an order beside its items."""
    kinds = (OrderedDict, dict, list, set)
    return next(kind for kind in kinds if isinstance(container, kind))


def _copied(value: Any, seen: dict[int, _Copied]) -> Any:
    if not isinstance(value, dict | list | set):
        return value
    if not value:  # most of a module's own are
        return _Empty(value)
    copied = seen.get(id(value))
    if copied is None:
        copied = seen[id(value)] = _Copied(value)
        if isinstance(value, dict):
            items = list(_built_in(value).items(value))
            copied.contents = {key: _copied(item, seen) for key, item in items}
        elif isinstance(value, list):
            copied.contents = [_copied(item, seen) for item in list.__iter__(value)]
        else:
            copied.contents = set(set.__iter__(value))
    return copied


def _fill(container: Any, contents: Any) -> None:
    if isinstance(container, dict):
        put_back(container, contents)
    elif isinstance(container, list):
        list.__setitem__(container, slice(None), [_original(item) for item in contents])
    else:
        set.clear(container)
        set.update(container, contents)


def _original(value: Any) -> Any:
    return value.put_back() if isinstance(value, _Copied | _Empty) else value
