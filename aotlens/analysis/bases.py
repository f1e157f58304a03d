"""The tensors that aliases are regenerated from: inputs, outputs, and intermediates as hidden outputs.

Invariant: all regenerated tensors on a storage start from the base that the storage has here.
"""

from typing import Any

from aotlens.analysis.records import AliasBase, BaseInfo, InputBase, IntermediateBaseOf, OutputBase
from aotlens.capture.recorded import StorageState
from aotlens.capture.records import Captured


class Bases:
    """The hidden outputs, and the base of each storage that has one."""

    def __init__(self, captured: Captured) -> None:
        self._captured = captured
        self._by_storage: dict[int, AliasBase] = {}
        self.hidden: list[BaseInfo] = []

    def of(self, storage: StorageState) -> AliasBase | None:
        """Return the base of the tensors on a storage; None if it has none yet."""
        return self._by_storage.get(id(storage))

    def set(self, storage: StorageState, base: AliasBase) -> AliasBase:
        """Make this the base of the tensors on a storage."""
        self._by_storage[id(storage)] = base
        return base

    def hide(self, info: BaseInfo, storage: StorageState) -> AliasBase:
        """Add a hidden output, as the base of the tensors on a storage."""
        self.hidden.append(info)
        return self.set(storage, IntermediateBaseOf(len(self.hidden) - 1))

    def tensor(self, base: AliasBase | None) -> Any:
        """Return the fake tensor of a base; None for a constant, and for a base without gradient."""
        match base:
            case InputBase(index=index):
                return self._captured.inputs[index].argument
            case OutputBase(index=index):
                return self._captured.outputs[index]
            case IntermediateBaseOf(index=index):
                return self.hidden[index].tensor
        return None
