"""Write a mismatch as a small script that exits with code 1 as long as it differs.

The captured operators are reduced (`shrinking`) and written as Python text.  The script is run in its own
process to check that it still differs.
"""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aotlens.errors import AotlensError
from aotlens.ir.tensor_text import constant_text
from aotlens.options import CompileOptions
from aotlens.runtime.graph_text import graph_name, load_program, write_program
from aotlens.verify.compare import Verification
from aotlens.verify.locate.nodes import play
from aotlens.verify.locate.shrinking import Candidate, candidate_of, shrink_program
from aotlens.verify.locate.stage_inputs import InputCopies
from aotlens.verify.targets import Checked, compare_function

LIMIT_S = 300
"""Time limit for the written script."""
ALONE = (
    "the captured operators by themselves equal eager: what differs is how they are called (aliased"
    " arguments, a custom autograd function, grad mode), which --minimise cannot make smaller"
)


def minimise(checked: Checked, options: CompileOptions, file: Path, script: str | None = None) -> str:
    """Write the smallest script that still differs, and return a sentence about the outcome.

    `script` is the user's; its definitions are loaded if the operators alone do not show the difference.
    """
    backend = _backend_text(options.backend)
    if backend is None or checked.values is None:
        why = "the backend has no name to import" if backend is None else "its arguments are not all captured"
        return f"not minimised: {why}"
    whole, recorded = _whole(checked)
    kind = checked.verification.differences[0].kind
    is_wrong = lambda candidate: _differs(candidate, options, kind)
    if not is_wrong(whole):
        return f"not minimised: {ALONE}"
    small = _simpler_values(shrink_program(whole, recorded, is_wrong), is_wrong)
    verification = _verified(small, options)
    assert verification is not None  # fails for the same reason
    text = _Script(small, options, backend, verification)
    for loaded in dict.fromkeys((None, script)):
        file.write_text(text.source(loaded))
        if _exit_code(file) == 1:
            needs = f", with the definitions of {loaded}" if loaded else ""
            count = len(small.program.nodes)
            size = f"{count} operator{'' if count == 1 else 's'}"
            return f"minimised to {size}{needs}: `python {file}` ends with exit code 1"
    return f"minimised, but {file} does not differ in a process of its own: something else changes torch"


def _whole(checked: Checked) -> tuple[Candidate, dict[str, Any]]:
    compiled = checked.compiled
    program = compiled.stages()[0].program
    assert checked.values is not None  # checked by the caller
    arguments = InputCopies(compiled, checked.values, {}).arguments(program, {})
    recorded = play(program, [_copy(value) for value in arguments])
    needs = {
        captured_input.slot.name
        for captured_input in compiled.captured.inputs
        if captured_input.is_tensor and captured_input.requires_grad
    }
    names = {
        captured_input.node.name for captured_input in program.inputs if captured_input.slot.name in needs
    }
    return candidate_of(program, recorded, arguments, names), recorded


def _differs(candidate: Candidate, options: CompileOptions, kind: str) -> bool:
    verification = _verified(candidate, options)
    if verification is None or verification.outcome != "differs":
        return False
    return any(difference.kind == kind for difference in verification.differences)


def _verified(candidate: Candidate, options: CompileOptions) -> Verification | None:
    """Compare the candidate with eager; None if it cannot run."""
    try:
        return compare_function(options, load_program(candidate.program), candidate.values)
    except (AotlensError, RuntimeError, TypeError, ValueError, AssertionError):
        return None


def _simpler_values(small: Candidate, is_wrong: Callable[[Candidate], bool]) -> Candidate:
    """Replace recorded values by ones and random numbers where the candidate still differs."""
    values = list(small.values)
    for index, value in enumerate(values):
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.numel() < 2:
            continue
        values[index] = _random(value)
        if not is_wrong(replace(small, values=tuple(values))):
            values[index] = value
    return replace(small, values=tuple(values))


def _random(like: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    random = torch.randn(like.shape, generator=generator, dtype=torch.float32).to(like.dtype)
    return random.requires_grad_(like.requires_grad)


class _Script:
    """The text of one small program, its inputs and the comparison."""

    def __init__(
        self, small: Candidate, options: CompileOptions, backend: str, verification: Verification
    ) -> None:
        self._small = small
        self._options = options
        self._backend = backend
        self._verification = verification

    def source(self, script: str | None) -> str:
        """Return the script's text; `script` is loaded for its definitions."""
        graph = write_program(self._small.program).source.removeprefix("import torch\n")
        head = ["import sys", "", "import torch", "", self._imports()]
        if script is not None:
            head.insert(0, "import runpy")
            head += ["", f'runpy.run_path({str(Path(script).resolve())!r}, run_name="definitions")']
        options = f"{self._name()}, dynamic={self._options.dynamic}, policy={str(self._options.policy)!r}"
        end = [
            'if __name__ == "__main__":',
            f"    options = CompileOptions({options})",
            f"    verification = verify_with(options, {graph_name(self._small.program)}, inputs(), {{}})",
            "    print(verification.summary())",
            "    sys.exit(0 if verification.ok else 1)",
            "",
        ]
        parts = [self._docstring(), "\n".join(head), graph.strip(), self._inputs(), "\n".join(end)]
        return "\n\n".join(parts[:2]) + "\n\n\n" + "\n\n\n".join(parts[2:])

    def _docstring(self) -> str:
        text = str(self._verification.differences[0]).replace("\\", "\\\\").replace('"""', "'''")
        return f'"""Compiled differs from eager; made small by `aotlens verify --minimise`.\n\n{text}\n"""'

    def _imports(self) -> str:
        lines = ["from aotlens.options import CompileOptions", "from aotlens.verify import verify_with"]
        if callable(self._options.backend):
            module, _, name = self._backend.partition(":")
            lines.append(f"from {module} import {name}")
        return "\n".join(lines)

    def _name(self) -> str:
        return self._backend.partition(":")[2] if callable(self._options.backend) else repr(self._backend)

    def _inputs(self) -> str:
        lines = ["def inputs():", "    generator = torch.Generator()"]
        names = []
        for program_input, value in zip(self._small.program.inputs, self._small.values, strict=True):
            name = program_input.node.name
            names.append(name)
            lines += [f"    {line}" for line in _value_lines(name, value)]
        return "\n".join([*lines, f"    return [{', '.join(names)}]"])


def _value_lines(name: str, value: Any) -> list[str]:
    if not isinstance(value, Tensor):
        return [f"{name} = {value!r}"]
    shape = tuple(value.shape)
    if value.is_floating_point() and value.numel() > 1 and torch.equal(value, _random(value)):
        code = f"torch.randn({shape}, generator=generator.manual_seed(0)).to({value.dtype})"
    else:
        code = constant_text(value.detach(), limit=1 << 16) or f"torch.ones({shape}, dtype={value.dtype})"
    lines = [f"{name} = {code}"]
    if not value.is_contiguous():
        layout = f"torch.empty_strided({shape}, {tuple(value.stride())}, dtype={value.dtype})"
        lines.append(f"{name} = {layout}.copy_({name})")
    return [*lines, f"{name}.requires_grad_()"] if value.requires_grad else lines


def _backend_text(backend: object) -> str | None:
    """Return a backend's name, or `module:name` of a function that another process can import; else None."""
    if isinstance(backend, str):
        return backend
    module, name = getattr(backend, "__module__", "__main__"), getattr(backend, "__qualname__", ".")
    return None if module == "__main__" or not name.isidentifier() else f"{module}:{name}"


def _exit_code(file: Path) -> int:
    done = subprocess.run([sys.executable, str(file)], capture_output=True, timeout=LIMIT_S, check=False)
    return done.returncode


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value
