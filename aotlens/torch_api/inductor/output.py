"""The code that Inductor generated: its globals, its pickled form, its kernels."""

from collections.abc import Callable
from typing import Any

from aotlens.torch_api.inductor.kernel_groups import kernel_function
from aotlens.torch_api.patches.scopes import handled

__all__ = [
    "cpp_pybinding",
    "inductor_folder",
    "inductor_module_globals",
    "load_inductor_code",
    "pickle_inductor_code",
]


def inductor_module_globals(code: Any) -> dict[str, Any] | None:
    """Return the globals of the module that Inductor generated for a graph; None without one."""
    runner = getattr(code, "compiled_fn_runner", None)
    call = runner.call if runner is not None else getattr(code, "current_callable", None)
    names = getattr(getattr(call, "__func__", call), "__globals__", None)
    return names if names is not None and "async_compile" not in names and "call" in names else None


def pickle_inductor_code(code: Any) -> bytes:
    """Return what Inductor made of a graph, as its own cache writes it, without loaded libraries.

    Raises:
        TypeError, AttributeError, pickle.PicklingError: part of it cannot be written.
    """
    import copy
    import pickle

    written = copy.copy(code)
    written.prepare_for_serialization()
    return pickle.dumps(written)


def load_inductor_code(pickled: bytes) -> Any:
    """Load what `pickle_inductor_code` wrote; this runs the bytes, so they must be this user's own.

    Raises OSError where Inductor's folder for files cannot be written.
    """
    import pickle

    from torch._inductor.codecache import FxGraphCache
    from torch._inductor.output_code import CompiledFxGraphConstants

    code = pickle.loads(pickled)
    constants = CompiledFxGraphConstants()
    compiled, _ = FxGraphCache.cache_hit_post_compile(code, {}, constants)
    if compiled is None:
        raise OSError("Inductor cannot load what it generated")
    compiled.post_compile([], constants, compiled.fx_kwargs)
    return compiled


@handled
def cpp_pybinding(
    find: Callable[..., Any], original: Callable[..., Any], self: Any, argtypes: list[str], source_code: str
) -> Any:
    """How the text that Inductor generated gets a C++ kernel: from the library and by the name that
    `handler(argtypes, source)` returns.

    Where that returns None, the kernel is compiled.  Inductor itself would first try out what the compiler
    and the processor can do, which takes seconds.
    """
    library = find(argtypes, source_code)
    return original(self, argtypes, source_code) if library is None else kernel_function(*library)


def inductor_folder() -> str:
    """Return the folder in which Inductor puts what it compiles."""
    from torch._inductor.codecache import cache_dir

    return str(cache_dir())
