"""The code that Inductor generated: its globals, its pickled form, its kernels."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = [
    "inductor_folder",
    "inductor_module_globals",
    "load_inductor_code",
    "pickle_inductor_code",
    "use_precompiled_kernels",
]


def inductor_module_globals(code: Any) -> dict[str, Any] | None:
    """What is known in the module that Inductor generated for a graph; None where it generated none."""
    runner = getattr(code, "compiled_fn_runner", None)
    call = runner.call if runner is not None else getattr(code, "current_callable", None)
    names = getattr(getattr(call, "__func__", call), "__globals__", None)
    return names if names is not None and "async_compile" not in names and "call" in names else None


def pickle_inductor_code(code: Any) -> bytes:
    """What Inductor made of a graph, as its own cache writes it: without what is loaded.

    Raises:
        TypeError, AttributeError, pickle.PicklingError: it holds what cannot be written.
    """
    import copy
    import pickle

    written = copy.copy(code)
    written.prepare_for_serialization()
    return pickle.dumps(written)


def load_inductor_code(pickled: bytes) -> Any:
    """The other way round; runs what the bytes say, so they must be this user's own.

    Raises OSError where Inductor's folder for files cannot be written.
    """
    import pickle

    from torch._inductor.codecache import FxGraphCache
    from torch._inductor.output_code import CompiledFxGraphConstants

    code = pickle.loads(pickled)
    constants = CompiledFxGraphConstants()
    found, _ = FxGraphCache.cache_hit_post_compile(code, {}, constants)
    if found is None:
        raise OSError("Inductor cannot load what it generated")
    found.post_compile([], constants, found.fx_kwargs)
    return found


@contextmanager
def use_precompiled_kernels(find: Callable[[list[str], str], str | None]) -> Iterator[None]:
    """Within it the text that Inductor generated takes a C++ kernel from the file that `find` names.

    `find` is given the kernel's argument types and its text; where it gives None the kernel is compiled.
    Inductor itself would first try out what the compiler and the processor can do, which takes seconds.
    """
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.codecache import CppPythonBindingsCodeCache

    compile_kernel = AsyncCompile.cpp_pybinding

    def cpp_pybinding(self: Any, argtypes: list[str], source_code: str) -> Any:
        path = find(argtypes, source_code)
        if path is None:
            return compile_kernel(self, argtypes, source_code)
        library: Any = CppPythonBindingsCodeCache._load_library(path, os.path.basename(path).split(".")[0])
        return library.kernel

    AsyncCompile.cpp_pybinding = cpp_pybinding
    try:
        yield
    finally:
        AsyncCompile.cpp_pybinding = compile_kernel


def inductor_folder() -> str:
    """Where Inductor puts what it compiles."""
    from torch._inductor.codecache import cache_dir

    return str(cache_dir())
