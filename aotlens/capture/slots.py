"""The attributes of an object whose class has `__slots__`, as a dictionary."""

from collections.abc import Iterator, MutableMapping
from types import MemberDescriptorType
from typing import Any


def has_slots(kind: type) -> bool:
    """Whether objects of a class keep attributes elsewhere than in a dictionary."""
    return any(
        isinstance(member, MemberDescriptorType) for base in kind.__mro__ for member in vars(base).values()
    )


class Slots(MutableMapping[str, Any]):
    """Reads and binds them in place; what stands in the object's own dictionary, if it has one, too."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self._members = {
            name: member
            for base in reversed(type(owner).__mro__)
            for name, member in vars(base).items()
            if isinstance(member, MemberDescriptorType)
        }
        self._others: dict[str, Any] = getattr(owner, "__dict__", {})

    def __getitem__(self, name: str) -> Any:
        if name not in self._members:
            return self._others[name]
        try:
            return self._members[name].__get__(self.owner)
        except AttributeError:  # not bound yet
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self._members:
            self._members[name].__set__(self.owner, value)
        else:
            self._others[name] = value

    def __delitem__(self, name: str) -> None:
        if name in self._members:
            self._members[name].__delete__(self.owner)
        else:
            del self._others[name]

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in self._members if name in self)
        yield from self._others

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        if name not in self._members:
            return name in self._others
        try:
            self._members[str(name)].__get__(self.owner)
        except AttributeError:
            return False
        return True
