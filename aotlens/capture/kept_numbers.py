"""Calls in which torch would look at a symbolic number, and which keep it a symbol here."""

from typing import Any

import torch

from aotlens.capture.brackets import at_symbols
from aotlens.capture.tensor_of_numbers import MAKERS, made_of_numbers
from aotlens.torch_api.modes import TorchFunctionMode


class KeptNumbers(TorchFunctionMode):
    """Numbers in brackets, reading and writing, and in the list that a tensor is made of."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result: Any = NotImplemented
        if func is torch.Tensor.__getitem__ or func is torch.Tensor.__setitem__:
            result = at_symbols(func, *args)
        elif func in MAKERS:
            result = made_of_numbers(func, args, kwargs or {})
        return func(*args, **(kwargs or {})) if result is NotImplemented else result
