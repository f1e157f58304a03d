"""Compiled against eager: values, gradients, mutations, aliasing, and what else a caller can see.

`aotlens.verify` is both this package and the function of that name, so the module is made callable.
"""

import sys
import types
from typing import TYPE_CHECKING, Any

from aotlens.verify.compare import Difference, Verification
from aotlens.verify.first_call import verify_first_call

if TYPE_CHECKING:
    from aotlens.verify.targets import verify, verify_with

__all__ = ["Difference", "Verification", "verify", "verify_first_call", "verify_with"]


def __getattr__(name: str) -> Any:
    # The pipeline is loaded only by who compiles here: a session that verifies has compiled already.
    if name in ("verify", "verify_with"):
        from aotlens.verify import targets

        return getattr(targets, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _CallablePackage(types.ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Verification:
        from aotlens.verify.targets import verify

        return verify(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
