"""C++ kernels for the CPU are built in groups: one library for several kernels of a graph.

Building a small kernel takes about 1.3 s of CPU time; reading the header, the Python bindings and the link
take 1.0 s of it, whatever the kernel does.  A group pays that once.  There are as many groups as Inductor has
threads that compile, so that none of them waits.

Invariant: a kernel that was built in a group is not built again, whichever kernels are beside it: a file of
its own in Inductor's folder names its library.  A kernel that cannot share a library, or whose library does
not compile, is built alone by Inductor.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aotlens.disk_cache import digest
from aotlens.torch_api.patches.scopes import around

__all__ = ["build_groups", "kernel_function", "queue_kernel"]

_LOG = logging.getLogger(__name__)

_ENTRY = re.compile(r'extern "C"\s+void\s+kernel\(')
_INCLUDE = re.compile(r"^\s*#\s*include\b.*$", re.MULTILINE)
_MACRO = re.compile(r"^\s*#\s*(?:define|undef)\b", re.MULTILINE)

_CALLS = """
namespace {{
template <typename Call> PyObject* call_kernel(PyObject* args, Py_ssize_t count, Call call) {{
    try {{
        if (!PyTuple_CheckExact(args) || PyTuple_GET_SIZE(args) != count)
            throw std::runtime_error("the kernel takes " + std::to_string(count) + " arguments");
        call();
    }} catch (std::exception const& error) {{
        PyErr_SetString(PyExc_RuntimeError, error.what());
        return nullptr;
    }} catch (...) {{
        PyErr_SetString(PyExc_RuntimeError, "unhandled error");
        return nullptr;
    }}
    Py_RETURN_NONE;
}}
{functions}
PyMethodDef kernels[] = {{
{methods}
    {{nullptr, nullptr, 0, nullptr}}}};
}}
"""
"""The Python functions of the kernels; the `kernel()` of Inductor's bindings adds them to the module."""


@dataclass(frozen=True, slots=True)
class _QueuedKernel:
    """A kernel that the code of a graph has asked for; the graph's `wait` has it built."""

    types: tuple[str, ...]
    """C++ types of its arguments."""
    source: str
    build_alone: Callable[[], Any] = field(compare=False)
    """Has Inductor build it; returns the function, or Inductor's future of it."""


@around
def queue_kernel(original: Callable[..., Any], self: Any, argtypes: list[str], source_code: str) -> Any:
    """Replace the function by which Inductor's code asks for a C++ kernel: `build_groups` builds it, unless
    it cannot share a library."""
    if not _can_share(source_code):
        return original(self, argtypes, source_code)
    from torch._inductor.async_compile import kernel_code_log

    kernel_code_log.info("CPP+Bindings Kernel:\n%s", source_code)
    return _QueuedKernel(tuple(argtypes), source_code, lambda: original(self, list(argtypes), source_code))


@around
def build_groups(original: Callable[..., Any], self: Any, scope: dict[str, Any]) -> None:
    """Replace the function by which Inductor's code waits for its kernels: those in the queue are built in
    groups."""
    queued = {name: value for name, value in scope.items() if isinstance(value, _QueuedKernel)}
    functions = _functions(dict.fromkeys(queued.values()), self.submit) if queued else {}
    for name, kernel in queued.items():
        scope[name] = functions[kernel] if kernel in functions else kernel.build_alone()
    original(self, scope)


def kernel_function(path: str, name: str) -> Any:
    """Return the Python function of a kernel from its library: `kernel` where it is alone in it."""
    from torch._inductor.codecache import CppPythonBindingsCodeCache

    library: Any = CppPythonBindingsCodeCache._load_library(path, os.path.basename(path).split(".")[0])
    # When Python loads a library again, it makes another module, whose `kernel` belongs to the first one.
    first = library.kernel.__self__
    if not hasattr(first, name):
        library.kernel()  # adds the functions of the group to it
    return getattr(first, name)


def _can_share(source: str) -> bool:
    """Return True if the text can be in a namespace, beside other kernels."""
    return len(_ENTRY.findall(source)) == source.count('extern "C"') == 1 and not _MACRO.search(source)


def _functions(
    kernels: Iterable[_QueuedKernel], submit: Callable[..., Any]
) -> dict[_QueuedKernel, Callable[..., None]]:
    """Return the functions of the kernels, without those whose library does not compile."""
    from torch._inductor.async_compile import get_compile_threads
    from torch._inductor.codecache import CppPythonBindingsCodeCache

    build_key = _build_key()
    files = {kernel: _index_file(kernel, build_key) for kernel in kernels}
    functions = {kernel: function for kernel in files if (function := _built(files[kernel])) is not None}
    threads = get_compile_threads()
    in_pool = submit if threads > 1 else None  # with one thread `submit` builds at once, under a lock
    groups = _groups([kernel for kernel in files if kernel not in functions], threads)
    libraries = [CppPythonBindingsCodeCache.load_async(_text(group), submit_fn=in_pool) for group in groups]
    for group, load in zip(groups, libraries, strict=True):
        try:
            path = load().__file__
            for number, kernel in enumerate(group):
                functions[kernel] = kernel_function(path, f"kernel_{number}")
                _write_index_file(files[kernel], path, f"kernel_{number}")
        except (RuntimeError, ImportError, OSError) as error:  # CppCompileError is a RuntimeError
            reason = str(error).partition("\n")[0]
            _LOG.debug("%d kernels are built one by one: %s", len(group), reason)
    return functions


def _groups(kernels: Sequence[_QueuedKernel], threads: int) -> list[list[_QueuedKernel]]:
    """Divide the kernels into groups whose texts are about equally long."""
    groups: list[list[_QueuedKernel]] = [[] for _ in range(max(1, min(threads, len(kernels) // 2)))]
    lengths = [0] * len(groups)
    for kernel in sorted(kernels, key=lambda kernel: (-len(kernel.source), kernel.source)):
        shortest = lengths.index(min(lengths))
        groups[shortest].append(kernel)
        lengths[shortest] += len(kernel.source)
    return [group for group in groups if group]


def _text(group: Sequence[_QueuedKernel]) -> str:
    """Return the C++ text of a library."""
    from torch._inductor.codecache import CppPythonBindingsCodeCache

    includes = dict.fromkeys(line.strip() for kernel in group for line in _INCLUDE.findall(kernel.source))
    bodies = [_INCLUDE.sub("", kernel.source).replace('extern "C"', "static", 1) for kernel in group]
    functions, methods = [], []
    for number, kernel in enumerate(group):
        arguments = ", ".join(
            f"parse_arg<{kind.removeprefix('const ')}>(args, {position})"
            for position, kind in enumerate(kernel.types)
        )
        functions.append(
            f"PyObject* python_kernel_{number}(PyObject*, PyObject* args) {{ return call_kernel("
            f"args, {len(kernel.types)}, [&] {{ group_{number}::kernel({arguments}); }}); }}"
        )
        methods.append(f'    {{"kernel_{number}", python_kernel_{number}, METH_VARARGS, ""}},')
    bindings = CppPythonBindingsCodeCache.suffix_template.format(
        arg_len=0,
        call_entry_func="if (PyModule_AddFunctions(self, kernels) < 0) return nullptr; Py_RETURN_NONE;",
        entry_func=CppPythonBindingsCodeCache.entry_function,
        extra_parse_arg=_CALLS.format(functions="\n".join(functions), methods="\n".join(methods)),
    )
    spaces = [f"namespace group_{number} {{\n{body}\n}}" for number, body in enumerate(bodies)]
    return "\n".join([*includes, *spaces, bindings])


def _build_key() -> str:
    """Return what else the library of a kernel depends on: the command, and the bindings."""
    from torch._inductor.codecache import CppPythonBindingsCodeCache
    from torch._inductor.cpp_builder import CppBuilder, CppTorchDeviceOptions
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    flags: dict[str, Any] = CppPythonBindingsCodeCache.cpp_compile_command_flags
    options = CppTorchDeviceOptions(device_type="cpu", vec_isa=pick_vec_isa(), **flags)
    command = CppBuilder(name="library", sources="kernels", BuildOption=options).get_command_line()
    return f"{command}\n{CppPythonBindingsCodeCache.suffix_template}{_CALLS}"


def _index_file(kernel: _QueuedKernel, build_key: str) -> Path:
    """Return the file that names the library of a kernel."""
    from torch._inductor.codecache import cache_dir

    key = digest(build_key, *kernel.types, kernel.source)
    return Path(cache_dir()) / "aotlens_kernels" / key[:2] / key


def _built(file: Path) -> Any | None:
    """Return the function of a kernel that was built before; None if it was not, or its library is gone."""
    try:
        name, path = file.read_text().split("\n")
        return kernel_function(path, name) if os.path.exists(path) else None  # Python loads a deleted one
    except (OSError, ValueError, ImportError, AttributeError):
        return None


def _write_index_file(file: Path, path: str, name: str) -> None:
    """Write the name of a kernel's function, and the path of its library."""
    from torch._inductor.codecache import write_atomic

    write_atomic(str(file), f"{name}\n{path}", make_dirs=True)
