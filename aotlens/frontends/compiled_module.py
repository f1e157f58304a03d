"""A module whose calls run compiled code, and which is otherwise the user's module.

Invariant: both share one attribute dictionary, so parameters, buffers, `training` and `state_dict` are the
same objects under the same names in both.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch


def compiled_module(
    module: torch.nn.Module, call: Callable[..., Any], compile_copy: Callable[[torch.nn.Module], Any]
) -> torch.nn.Module:
    """Return `module` with calls that go to `call`.

    The compiled code mutates this module's buffers, so `compile_copy` compiles each copy that `copy.deepcopy`
    or pickle makes.
    """
    kind = type(module)

    def copied(self: Any, memo: dict[int, Any]) -> Any:
        return compile_copy(deepcopy(module, memo))

    methods = {
        "__call__": lambda self, *args, **kwargs: call(*args, **kwargs),
        "__deepcopy__": copied,  # beside `__reduce_ex__`, since the class may have its own (`fx.GraphModule`)
        "__reduce_ex__": lambda self, protocol: (compile_copy, (module,)),
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        **{name: value for name, value in vars(call).items() if name != "__wrapped__"},
    }
    wrapper: torch.nn.Module = object.__new__(type(kind.__name__, (kind,), methods))
    object.__setattr__(wrapper, "__dict__", vars(module))
    return wrapper
