"""Inductor's generated kernels as report rows, with measured times."""

import ast
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from aotlens.ir.program import Program
from aotlens.model.report import Kernel, KernelChoice, Phase
from aotlens.torch_api.gpu import hold_gpu

_DEFINITION = re.compile(r"^(\w+) = async_compile\.(\w+)\(.*?r?'''\n(.*?)'''", re.MULTILINE | re.DOTALL)


def kernels_of(
    output_code: Any, provenance: dict[str, Any], program: Program, phase: Phase
) -> tuple[Kernel, ...]:
    """Return report rows from Inductor's record of the graph nodes that each kernel computes."""
    source = getattr(output_code, "source_code", "") or ""
    definitions = {name: text for name, _, text in _DEFINITION.findall(source)}
    nodes = {node.name: node for node in program.nodes}
    rows: list[Kernel] = []
    for key in sorted(provenance, key=_call_order):
        name = key.rsplit(":", 1)[0]
        members = tuple(dict.fromkeys(node for node in provenance[key]["post_grad_nodes"] if node in nodes))
        spans = dict.fromkeys(
            span for node in members if (span := nodes[node].origin.location.innermost) is not None
        )
        rows.append(
            Kernel(
                name=name,
                phase=phase,
                target=_device(program),
                source=definitions.get(name, ""),
                nodes=members,
                spans=tuple(spans),
            )
        )
    return tuple(rows)


def call_numbers(provenance: dict[str, Any]) -> list[int]:
    """Return the numbers of the calls, in the order of the rows."""
    return sorted(map(_call_order, provenance))


def _call_order(key: str) -> int:
    """Return a call's number from Inductor's key: `name:7`."""
    return int(key.rsplit(":", 1)[1])


def _device(program: Program) -> str:
    """Return the device of the graph: a GPU if one of its tensors is there, else the first tensor's
    device."""
    values = (
        node.val for node in (*(program_input.node for program_input in program.inputs), *program.nodes)
    )
    devices = [str(val.device) for val in values if hasattr(val, "device")]
    return next((device for device in devices if device.startswith("cuda")), (*devices, "cpu")[0])


WARM, RUNS = 3, 20
"""Warm-up runs, which are not counted, and measured runs."""

_WRAPPER = re.compile(r"^del async_compile$", re.MULTILINE)
"""The line between kernel definitions, above, and the functions that call them."""
_HANDLE = re.compile(r"^\s*# \[Provenance debug handles\] (.*):(\d+)$")
"""Inductor's comment above each call: its name, and the number of its provenance record."""
_GUARD = re.compile(r"torch\.cuda\._DeviceGuard\((\d+)\)")
"""How a wrapper makes its GPU current."""
_ENDING = re.compile(r"^\s*\w+ = workspace_\d+\[.*\.sum\(dim=0\)")
"""How a wrapper finishes a reduction of which a kernel left partial sums."""


class Timer:
    """Wall time: a call on the CPU is finished when it returns."""

    name = "this machine's CPU"

    def hold(self, calls: int) -> None:
        """Keep a GPU busy while `calls` calls are launched, so that launch gaps are not measured."""

    def mark(self) -> Any:
        """Return a mark at the current point of the device's work."""
        return time.perf_counter_ns()

    def elapsed_us(self, first: Any, second: Any) -> float:
        """Return the time between two marks; call it after `wait`."""
        return float(second - first) / 1e3

    def wait(self) -> None:
        """Wait until a GPU has finished all work."""


class CudaTimer(Timer):
    """CUDA events in the current stream of one GPU."""

    def __init__(self, device: torch.device) -> None:
        self.name = torch.cuda.get_device_name(device)
        self.device = device

    def hold(self, calls: int) -> None:
        with torch.cuda.device(self.device):
            hold_gpu(calls)

    def mark(self) -> Any:
        """Record an event; called within the wrapper, which has made its GPU current."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def elapsed_us(self, first: Any, second: Any) -> float:
        return float(first.elapsed_time(second)) * 1e3

    def wait(self) -> None:
        torch.cuda.synchronize(self.device)


@dataclass(frozen=True, slots=True)
class Measurable:
    """A graph compiled by Inductor, with what it takes to run it."""

    source: str
    names: Mapping[str, Any]
    """The globals of its module: kernels, constants."""
    handles: tuple[int, ...]
    """The numbers of its calls, in the order of the report's rows."""
    examples: tuple[Any, ...]
    """Fake inputs."""

    @property
    def timer(self) -> Timer:
        """The clock of the graph's device."""
        gpu = self.gpu
        return Timer() if gpu is None else CudaTimer(gpu)

    @property
    def gpu(self) -> torch.device | None:
        """The GPU that the wrapper makes current; the graph's inputs may all be numbers."""
        match = _GUARD.search(self.source)
        return None if match is None else torch.device("cuda", int(match[1]))


@dataclass(frozen=True, slots=True)
class TimedCall:
    """The measurement of one call."""

    call_us: float | None
    """The median over warm runs; None where no run reached the call."""
    ending_us: tuple[float, ...] = ()
    """Times of the sums that finish the call."""
    ran: KernelChoice | None = None
    """The configuration that autotuning chose."""


def measure_calls(graph: Measurable, timer: Timer, runs: int = RUNS) -> tuple[TimedCall, ...]:
    """Measure each call of the graph.

    Raises whatever torch raises where inputs cannot be created or the graph rejects them.
    """
    marks: list[tuple[Part, Any]] = []
    call = _call_with_marks(graph, lambda number, part=0: marks.append(((number, part), timer.mark())))
    times_us: dict[Part, list[float]] = {}
    devices = [] if graph.gpu is None else [graph.gpu.index]
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        inputs = [_random_input(value) for value in graph.examples]
        for run in range(WARM + runs):
            marks.clear()
            timer.hold(len(graph.handles))
            call(list(inputs))
            timer.wait()
            for part, first, second in _pairs(marks) if run >= WARM else ():
                times_us.setdefault(part, []).append(timer.elapsed_us(first, second))
    medians = {part: median(times) for part, times in times_us.items()}
    choices = {number: _choice(graph.names.get(name)) for number, name in _call_names(graph.source)}
    return tuple(
        TimedCall(
            medians.get((number, 0)),
            tuple(medians[part] for part in sorted(medians) if part[0] == number and part[1]),
            choices.get(number),
        )
        for number in graph.handles
    )


Part = tuple[int, int]
"""A call's number; then 0 for the call itself, or the index of a sum that finishes it."""


def _call_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield the number and name of each call."""
    for _, called, numbers in _call_comments(source.splitlines()):
        for number in numbers:
            yield number, called


def _choice(kernel: Any) -> KernelChoice | None:
    """Return the configuration with which a Triton kernel was launched; None for other objects."""
    launchers: Any = getattr(kernel, "launchers", ())
    return chosen_config(launchers[0].config) if len(launchers) == 1 else None


def chosen_config(config: Any) -> KernelChoice:
    """Return a Triton configuration as plain data."""
    sizes = {name: value for name, value in config.kwargs.items() if type(value) is int}
    return KernelChoice(sizes, config.num_warps, config.num_stages)


def _pairs(marks: list[tuple[Part, Any]]) -> list[tuple[Part, Any, Any]]:
    """Pair the marks before and after each call; nested calls have their marks in between."""
    begun: dict[Part, Any] = {}
    pairs = []
    for number, mark in marks:
        if number in begun:
            pairs.append((number, begun.pop(number), mark))
        else:
            begun[number] = mark
    return pairs


def _call_with_marks(graph: Measurable, mark: Callable[..., None]) -> Callable[[list[Any]], Any]:
    """Return the graph's `call` with a mark before and after each call that it makes."""
    start = _WRAPPER.search(graph.source)
    text = with_marks(graph.source[start.end() :] if start is not None else graph.source)
    names = {**graph.names, MARK: mark}
    exec(compile(text, "<timed calls>", "exec"), names)  # noqa: S102 (the text that runs anyway)
    call: Callable[[list[Any]], Any] = names["call"]
    return call


MARK = "aotlens_mark"


def with_marks(text: str) -> str:
    """Return the wrapper's text with marks around the statements under each of Inductor's comments, up to the
    call.

    Statements that fetch the stream and allocate workspace precede a launch, so the call is identified by its
    name.
    """
    lines = text.splitlines()
    ends = {
        node.lineno: node.end_lineno or node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.stmt)
    }
    before: dict[int, list[str]] = {}
    behind: dict[int, list[str]] = {}
    for first, called, numbers in _call_comments(lines):
        begin, last = _call_lines(lines, ends, first, called)
        if begin is None:
            continue
        indent = lines[begin - 1][: len(lines[begin - 1]) - len(lines[begin - 1].lstrip())]
        marks = [f"{indent}{MARK}({call_number})" for call_number in numbers]
        before.setdefault(begin, []).extend(marks)
        behind.setdefault(last, []).extend(marks)
        for part, number in enumerate(_ending_sums(lines, last), 1):
            before[number] = behind[number] = [f"{indent}{MARK}({numbers[-1]}, {part})"]
    marked: list[str] = []
    for number, line in enumerate(lines, 1):
        marked += (*before.get(number, ()), line, *behind.get(number, ()))
    return "\n".join(marked) + "\n"


def _call_comments(lines: list[str]) -> Iterator[tuple[int, str, list[int]]]:
    """Yield Inductor's comments: the number of the next line, the name of the call, the numbers of the calls.

    Consecutive comments belong to one call, which the last one names.
    """
    waiting: list[int] = []
    for number, line in enumerate(lines, 1):
        handle = _HANDLE.match(line)
        if handle is not None:
            waiting.append(int(handle[2]))
            following = lines[number] if number < len(lines) else ""
            if _HANDLE.match(following) is None:
                yield number + 1, handle[1], waiting
                waiting = []


def _call_lines(lines: list[str], ends: dict[int, int], first: int, called: str) -> tuple[int | None, int]:
    """Return the first line below a comment and the last line of the statement that calls the name.

    If no such statement precedes the next comment, only the first statement counts.
    """
    begin: int | None = None
    for number in range(first, len(lines) + 1):
        if number not in ends:
            if _HANDLE.match(lines[number - 1]) is not None:
                break
            continue
        begin = begin or number
        statement = "\n".join(lines[number - 1 : ends[number]])
        if re.search(rf"\b{re.escape(called)}(\.run)?\(", statement):
            return begin, ends[number]
    return begin, ends[begin] if begin is not None else 0


def _ending_sums(lines: list[str], last: int) -> Iterator[int]:
    """Yield the lines of the sums directly after a launch."""
    number = last + 1
    while number <= len(lines) and _ENDING.match(lines[number - 1]) is not None:
        yield number
        number += 1


def _random_input(value: Any) -> Any:
    """Return a real input like a fake one: random data, zeros for integers, which may be indices."""
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return value.node.hint
    if not isinstance(value, torch.Tensor):
        return value
    sizes, strides = (tuple(map(_size, numbers)) for numbers in (value.shape, value.stride()))
    tensor = torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
    flat = tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.itemsize,), (1,), 0)
    if value.dtype is torch.bool:
        flat.bernoulli_(0.5)
    elif value.is_floating_point() and value.dtype.itemsize > 1:
        flat.normal_()
    else:
        flat.zero_()
    return tensor  # fill the whole storage, since elements may overlap, as in an expanded gradient


def _size(size: Any) -> int:
    return size if isinstance(size, int) else int(size.node.hint)
