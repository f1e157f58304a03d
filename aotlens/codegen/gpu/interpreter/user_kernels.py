"""The user's Triton kernels in the interpreter, launched by Inductor's wrapper or directly.

Invariant: they keep the user's block sizes, to which their grids belong.
"""

import inspect
from typing import Any

from aotlens.codegen.gpu.interpreter.records import UserLaunch
from aotlens.torch_api.gpu import interpreting_modules

IMPORTS = """\
import triton
import triton.language as tl
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math

"""
"""The imports that Inductor writes above a user's kernel."""


def user_kernel(launch: UserLaunch) -> Any:
    """Return the kernel as a function of Triton's interpreter."""
    codecache = interpreting_modules().codecache
    source = f"{IMPORTS}@triton.jit\n{launch.source}"
    key, path = codecache.PyCodeCache.write(source)  # Triton reads a function's text from its file
    return getattr(codecache.PyCodeCache.load_by_key_path(key, path), launch.kernel)


def launch_user_kernel(kernel: Any, arguments: tuple[Any, ...]) -> tuple[int, int, int]:
    """Launch a kernel as the wrapper does, and return its grid.

    The wrapper passes the arguments that are not `tl.constexpr`, with -1 for None, then the values on which
    the grid depends.
    """
    config, meta = kernel.configs[0], kernel.inductor_meta
    wanted = meta.get("extra_launcher_args", ())
    count = len(arguments) - len(wanted)
    constants = kernel.triton_meta["constants"]
    constexprs = set(_declared_constexprs(kernel)) | config.kwargs.keys()
    names = [name for name in kernel.triton_meta["signature"] if name not in constexprs]
    passed = dict(zip(names, arguments[:count], strict=True))
    none = {name: None for name in names if name in constants and constants[name] is None}
    fixed = {name: value for name, value in constants.items() if name in constexprs}
    expression = interpreting_modules().heuristics.GridExpr.from_meta(meta, config)
    x, y, z = expression.eval_slow(dict(zip(wanted, arguments[count:], strict=True)))
    kernel.fn[x, y, z](**{**passed, **none, **fixed, **config.kwargs})
    return int(x), int(y), int(z)


def _declared_constexprs(kernel: Any) -> list[str]:
    """Return the parameters that the kernel declares as `tl.constexpr`; torch 2.11 does not list them."""
    declared: list[str] | None = kernel.inductor_meta.get("declared_constexpr_names")
    if declared is not None:
        return declared
    parameters = inspect.signature(kernel.fn.fn).parameters.values()
    return [parameter.name for parameter in parameters if "constexpr" in str(parameter.annotation)]
