"""Inductor's code for one graph as lines of a module that depends on torch alone.

Invariant: the lines do what Inductor's own module does. Names that it defines get a prefix, so that the
graphs of one module do not collide; process-specific lines and the benchmark are omitted.
"""

import ast
import io
import re
import token
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from aotlens.codegen.graph_adapter import GraphAdapter, adapter_lines
from aotlens.torch_api.inductor.compile import CPU_KERNEL_SETTINGS, kernel_settings, vector_bits

ENTRY = "call"
COMPILER = "async_compile"
_OMITTED = ("get_args", "benchmark_compiled_module", "recursively_apply_fns", "runner")
_PROCESS_SPECIFIC = re.compile(r"^\s*# (\[Provenance debug handles\]|AOT ID:)")
WAIT_FOR_KERNELS = f"{COMPILER}.wait(globals())"


@dataclass(frozen=True, slots=True)
class StandaloneGraph:
    """The text of one compiled graph."""

    shared: tuple[str, ...]
    """Imports and aliases of torch functions, which the graphs of one module may share."""
    lines: tuple[str, ...]
    """Kernels and functions; the last function takes one list of inputs."""
    constants: Mapping[str, torch.Tensor]
    """Tensors that the lines read, by name."""
    vector_bits: int = 0
    """Width of the vectors in its C++ kernels; 0 without vectors."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Inductor settings under which its C++ kernels must be compiled; empty without any."""

    @property
    def compiles(self) -> bool:
        """Whether importing the module compiles kernels."""
        return any(COMPILER in line for line in self.lines)


def standalone_graph(
    source: str, phase: str, entry: str, constants: Mapping[str, torch.Tensor], adapter: GraphAdapter
) -> StandaloneGraph:
    """Return the text of Inductor's module `source`, with its function named `entry`, and the adapter around
    it.

    Call it under the settings with which the code was generated. Every other name that the text defines
    begins with `phase`.
    """
    code = f"{phase}_code" if adapter.is_needed else entry
    text = "\n".join(line for line in source.splitlines() if not _PROCESS_SPECIFIC.match(line))
    rows = text.splitlines()
    shared: list[str] = []
    own: list[ast.stmt] = []
    for statement in ast.parse(text).body:
        if _is_shared(statement):
            shared.append(ast.unparse(statement))
        elif not _is_omitted(statement, constants):
            own.append(statement)
    names = {name: f"{phase}_{name}" for statement in own for name in _bound_names(statement)}
    names |= {name: f"{phase}_{name}" for name in constants} | {ENTRY: code}
    lines: list[str] = []
    for statement in own:
        lines += ["", *([""] if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) else [])]
        lines += _renamed(_statement_lines(rows, statement, text), names)
    used = _names_in(lines)
    needed_shared = tuple(
        line for line in shared if any(name in used for name in _bound_names(ast.parse(line).body[0]))
    )
    if adapter.is_needed:
        lines += ["", "", *adapter_lines(adapter, entry, code)]
    return StandaloneGraph(
        needed_shared,
        tuple(lines),
        {names[name]: value for name, value in constants.items() if names[name] in used},
        _vector_bits(lines),
        kernel_settings(CPU_KERNEL_SETTINGS) if _has_cpp(lines) else {},
    )


def _is_shared(statement: ast.stmt) -> bool:
    """Return True for an import, or an alias such as `aten = torch.ops.aten`."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return True
    if not isinstance(statement, ast.Assign):
        return False
    value: ast.expr = statement.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id == "AsyncCompile"
    while isinstance(value, ast.Attribute):
        value = value.value
    return isinstance(value, ast.Name) and value.id == "torch"


def _is_omitted(statement: ast.stmt, constants: Mapping[str, torch.Tensor]) -> bool:
    """Return True for the benchmark, the wait for kernels (a module waits once), and placeholders of
    constants."""
    if isinstance(statement, (ast.If, ast.Delete, ast.Expr)):
        return True
    names = _bound_names(statement)
    if isinstance(statement, ast.Assign) and names == [ENTRY]:
        return _is_runner_call(statement)
    return any(name in _OMITTED or name in constants for name in names)


def _is_runner_call(statement: ast.Assign) -> bool:
    return isinstance(statement.value, ast.Attribute)


def _bound_names(statement: ast.stmt) -> list[str]:
    """Return the names that a statement binds."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return [statement.name]
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.partition(".")[0] for alias in statement.names]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _statement_lines(rows: list[str], statement: ast.stmt, text: str) -> list[str]:
    """Return the lines of a statement; the class around `call` is unwrapped."""
    assert statement.end_lineno is not None  # of every parsed statement
    if isinstance(statement, ast.ClassDef) and statement.name == "Runner":
        return _runner_lines(rows, statement, text)
    return rows[statement.lineno - 1 : statement.end_lineno]


def _runner_lines(rows: list[str], runner: ast.ClassDef, text: str) -> list[str]:
    call = next(part for part in runner.body if isinstance(part, ast.FunctionDef) and part.name == ENTRY)
    assert call.end_lineno is not None  # of every parsed statement
    body = [row.removeprefix("    ") for row in rows[call.lineno - 1 : call.end_lineno]]
    partitions = re.search(r"^runner = Runner\(partitions=\[(.*)\]\)$", text, re.MULTILINE)
    inner = [name for name in (partitions.group(1).split(",") if partitions else []) if name]
    body[0] = body[0].replace("(self, ", "(")
    for index, name in enumerate(inner):
        body = [row.replace(f"self.partitions[{index}]", name.strip()) for row in body]
    return body


def _renamed(lines: list[str], names: Mapping[str, str]) -> list[str]:
    """Rename names in the lines; strings, attributes and keywords of calls stay."""
    changed = list(lines)
    for line_index, start, end, word in reversed(list(_words(lines))):
        if word in names:
            changed[line_index] = changed[line_index][:start] + names[word] + changed[line_index][end:]
    return changed


def _words(lines: list[str]) -> Iterator[tuple[int, int, int, str]]:
    """Yield line, first and last column, and text of each name that is not an attribute."""
    previous = ""
    tokens = tokenize.generate_tokens(io.StringIO("\n".join([*lines, ""])).readline)
    for token_info in tokens:
        if token_info.type == token.NAME and previous != ".":
            yield token_info.start[0] - 1, token_info.start[1], token_info.end[1], token_info.string
        if token_info.type not in (token.NL, token.NEWLINE, token.COMMENT, token.INDENT, token.DEDENT):
            previous = token_info.string


def _names_in(lines: list[str]) -> set[str]:
    """Return the names that the lines use, and `AsyncCompile` if they compile kernels.

    They use it through the shared line `async_compile = AsyncCompile()`, which needs the import.
    """
    names = {word for _, _, _, word in _words(lines)}
    return names | {"AsyncCompile"} if COMPILER in names else names


def _has_cpp(lines: list[str]) -> bool:
    return any("cpp_pybinding" in line for line in lines)


def _vector_bits(lines: list[str]) -> int:
    """Return the vector width of kernels for this machine's CPU."""
    if not any("at::vec::" in line for line in lines):
        return 0
    return vector_bits()


def aligning_lines(compiled: Any, entry: str) -> list[str]:
    """Return lines that align a GPU graph's mutated inputs: copied to aligned memory before, and back after.

    Inductor's code aligns inputs that are only read by itself.
    """
    written = set(getattr(compiled, "mutated_input_idxs", ()))
    doubtful = [index for index in getattr(compiled, "inputs_to_check", ()) if index in written]
    if not doubtful:
        return []
    return [
        "",
        "",
        f"{entry} = torch._inductor.utils.align_inputs_from_check_idxs({entry}, {doubtful}, {doubtful})",
    ]
