"""Transfer a graph's tensors to the interpreter's process and back.

Invariant: tensors that share a storage on one side do so on the other, and each output is on the device where
the graph has it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from aotlens.codegen.gpu.interpreter.records import Answer, ViewOfInput


def copied(inputs: list[Any]) -> Iterator[Any]:
    """Yield copies on the CPU that share storages as the originals do."""
    storages: dict[int, torch.UntypedStorage] = {}
    for value in inputs:
        if not isinstance(value, torch.Tensor):
            yield value
            continue
        storage = value.untyped_storage()
        if storage._cdata not in storages:
            storages[storage._cdata] = storage.clone() if storage.device.type == "cpu" else storage.cpu()
        layout = (value.storage_offset(), value.shape, value.stride())
        yield torch.empty(0, dtype=value.dtype).set_(storages[storage._cdata], *layout)


def write_back(inputs: list[Any], answer: Answer) -> None:
    """Write the changed storages of the other process to the inputs."""
    for index, content in answer.written.items():
        write_bytes(inputs[index], content)


def write_bytes(tensor: torch.Tensor, content: torch.Tensor) -> None:
    """Set all bytes of a tensor's storage."""
    storage = tensor.untyped_storage()
    torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).copy_(content)


def in_shared_memory(
    outputs: Sequence[Any], inputs: list[Any], devices: Sequence[torch.device | None]
) -> Iterator[Any]:
    """Yield the other process's outputs as this process's: views of inputs where they were views there, else
    on their devices; None is the CPU."""
    copies: dict[int, torch.UntypedStorage] = {}
    for value, device in zip(outputs, devices, strict=True):
        if isinstance(value, ViewOfInput):
            yield _view_of_input(value, inputs)
        elif not isinstance(value, torch.Tensor) or device is None or device.type == "cpu":
            yield value
        else:
            storage = value.untyped_storage()
            if storage._cdata not in copies:
                copies[storage._cdata] = _copied_to(device, storage)
            layout = (value.storage_offset(), value.shape, value.stride())
            output = torch.empty(0, dtype=value.dtype, device=device)
            yield output.set_(copies[storage._cdata], *layout)


def _copied_to(device: torch.device, storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """Copy a storage to a device, within a tensor so that an emulated GPU tracks it."""
    content = torch.empty(storage.nbytes(), dtype=torch.uint8, device=device)
    content.copy_(torch.empty(0, dtype=torch.uint8).set_(storage))
    return content.untyped_storage()


def _view_of_input(value: ViewOfInput, inputs: list[Any]) -> torch.Tensor:
    """Return an output that is a view of an input's storage: the input itself where they are equal."""
    storage = inputs[value.input].untyped_storage()
    empty = torch.empty(0, dtype=value.dtype, device=storage.device)
    result = empty.set_(storage, value.offset, value.size, value.stride)
    same = (
        candidate
        for candidate in inputs
        if isinstance(candidate, torch.Tensor) and _is_same(candidate, result)
    )
    return next(same, result)


def _is_same(first: torch.Tensor, second: torch.Tensor) -> bool:
    layouts = [
        (t.untyped_storage()._cdata, t.storage_offset(), tuple(t.shape), t.stride(), t.dtype)
        for t in (first, second)
    ]
    return layouts[0] == layouts[1]
