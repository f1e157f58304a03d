"""Compare compiled calls with eager: values, gradients, mutations, aliasing and other effects that a caller
can see.

`aotlens.verify` is both this package and the function of that name, so the module is made callable.
"""

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aotlens.verify.compare import Difference, Verification
    from aotlens.verify.first_call import verify_first_call
    from aotlens.verify.targets import verify, verify_with

__all__ = ["Difference", "Verification", "verify", "verify_first_call", "verify_with"]

MODULES = {
    "Difference": "compare",
    "Verification": "compare",
    "verify": "targets",
    "verify_first_call": "first_call",
    "verify_with": "targets",
}
"""The module that defines each public name."""


def __getattr__(name: str) -> Any:
    # Loaded on first use: a compilation needs only single modules of this package.
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{MODULES[name]}"), name)


class _CallablePackage(types.ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> "Verification":
        from aotlens.verify.targets import verify

        return verify(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
