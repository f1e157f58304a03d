"""Serialise Inductor's code for one graph, so that another process need not generate it.

Invariant: the bytes hold a pickle and compiled libraries, both of which execute when they are loaded;
`load_code` gets them only from the user's private store.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotlens.codegen.graph_adapter import GraphAdapter
from aotlens.codegen.graph_calls import as_boxed
from aotlens.disk_cache import digest, write_atomically
from aotlens.ir.fingerprint import NoFingerprintError
from aotlens.torch_api.inductor.compile import inductor_config_patch
from aotlens.torch_api.inductor.output import (
    inductor_folder,
    inductor_module_globals,
    load_inductor_code,
    pickle_inductor_code,
)
from aotlens.torch_api.patches.compilers import PRECOMPILED_KERNELS
from aotlens.torch_api.patches.scopes import patched

__all__ = ["Library", "SerializedCode", "load_code", "serialize_code"]


@dataclass(frozen=True, slots=True)
class Library:
    """Compiled C++ kernels in one file."""

    path: str
    """Its path within Inductor's folder."""
    data: bytes
    functions: dict[str, str]
    """The name of each kernel's function in it, by the digest of the kernel's argument types and source."""


@dataclass(frozen=True, slots=True)
class SerializedCode:
    """One graph's code, and the adapter around it."""

    pickled: bytes
    adapter: GraphAdapter
    libraries: tuple[Library, ...]


def serialize_code(code: Any, adapter: GraphAdapter) -> SerializedCode:
    """Return what must be on disk for Inductor's code to run in another process.

    Raises:
        NoFingerprintError: it holds what another process does not have.
    """
    if getattr(code, "device_types", None) is None or set(code.device_types) - {"cpu"}:
        raise NoFingerprintError("code for a GPU, which Inductor's own cache keeps")
    try:
        pickled = pickle_inductor_code(code)
    except Exception as error:
        raise NoFingerprintError(f"what Inductor made cannot be written ({type(error).__name__})") from error
    return SerializedCode(pickled, adapter, tuple(_libraries(code)))


def load_code(code: SerializedCode, config: dict[str, Any]) -> Callable[[list[Any]], Any]:
    """Return the graph's code, after writing its libraries to where Inductor had them.

    Raises OSError where that is impossible.
    """
    folder, functions = Path(inductor_folder()).resolve(), dict[str, tuple[str, str]]()
    for library in code.libraries:
        path = (folder / library.path).resolve()
        if not path.is_relative_to(folder):
            raise OSError(f"{library.path} is no place within {folder}")
        _put(path, library.data)
        functions |= {kernel: (str(path), name) for kernel, name in library.functions.items()}

    def find(types: list[str], text: str) -> tuple[str, str] | None:
        return functions.get(digest(*types, text))

    with patched(PRECOMPILED_KERNELS, find), inductor_config_patch(config):
        return code.adapter.code(as_boxed(load_inductor_code(code.pickled)))


def _libraries(code: Any) -> Iterator[Library]:
    """Yield the compiled libraries that the generated module loaded."""
    folder = Path(inductor_folder()).resolve()
    names: dict[str, Any] = inductor_module_globals(code) or {}
    functions: dict[Path, dict[str, str]] = {}
    for name, kernel in _definitions(code.source_code):
        function: Any = names.get(name)
        file = getattr(getattr(function, "__self__", None), "__file__", None)
        if isinstance(file, str):
            functions.setdefault(Path(file).resolve(), {})[kernel] = function.__name__
    for path, names_in_it in functions.items():
        if path.is_relative_to(folder):
            if not path.exists():
                raise NoFingerprintError("a library of Inductor's was deleted while it was loaded")
            yield Library(str(path.relative_to(folder)), path.read_bytes(), names_in_it)


def _definitions(source: str) -> Iterator[tuple[str, str]]:
    """Yield the C++ kernels of a generated text: `name = async_compile.cpp_pybinding(types, text)`."""
    for statement in ast.parse(source).body:
        match statement:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Attribute(attr="cpp_pybinding"), args=[types, text]),
            ):
                yield name, digest(*ast.literal_eval(types), ast.literal_eval(text))


def _put(path: Path, data: bytes) -> None:
    """Write the file unless it exists."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data, mode=0o755)
