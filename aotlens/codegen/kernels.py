"""Kernels that Inductor generated, as report rows and with their measured times."""

import ast
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

import torch

from aotlens.ir.program import Program
from aotlens.model.report import Kernel, KernelChoice, Phase
from aotlens.torch_api.gpu import hold_gpu

_DEFINITION = re.compile(r"^(\w+) = async_compile\.(\w+)\(.*?r?'''\n(.*?)'''", re.MULTILINE | re.DOTALL)


def kernels_of(
    output_code: Any, provenance: dict[str, Any], program: Program, phase: Phase
) -> tuple[Kernel, ...]:
    """Rows from Inductor's own record of which graph nodes each kernel computes."""
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
    """The numbers of the calls, in the order of the rows."""
    return sorted(map(_call_order, provenance))


def _call_order(key: str) -> int:
    """Inductor numbers its calls: `name:7`."""
    return int(key.rsplit(":", 1)[1])


def _device(program: Program) -> str:
    """Where the graph runs: the GPU that one of its tensors is on, else the first tensor's device."""
    values = (
        node.val for node in (*(program_input.node for program_input in program.inputs), *program.nodes)
    )
    devices = [str(val.device) for val in values if hasattr(val, "device")]
    return next((device for device in devices if device.startswith("cuda")), (*devices, "cpu")[0])


WARM, RUNS = 3, 20
"""Runs that are not counted, and those that are."""

_WRAPPER = re.compile(r"^del async_compile$", re.MULTILINE)
"""Kernels are defined above, the functions that call them below."""
_HANDLE = re.compile(r"^\s*# \[Provenance debug handles\] (.*):(\d+)$")
"""Inductor's comment above each call, with the call's name, and the number under which it keeps its nodes."""
_GUARD = re.compile(r"torch\.cuda\._DeviceGuard\((\d+)\)")
"""How a wrapper makes its GPU the current one."""
_ENDING = re.compile(r"^\s*\w+ = workspace_\d+\[.*\.sum\(dim=0\)")
"""How a wrapper ends a reduction of which a kernel has left partial sums."""


class Timer(Protocol):
    """A clock of the device on which the calls run."""

    name: str
    """What ran them."""

    def hold(self, calls: int) -> None:
        """Let the device wait while so many calls are launched: it shall find them in its queue, and not the
        time between launches."""

    def mark(self) -> Any:
        """This moment in the device's work."""

    def elapsed_us(self, first: Any, second: Any) -> float:
        """Between two marks, once `wait` has returned."""

    def wait(self) -> None:
        """Until the device has done all that it was given."""


class CudaTimer:
    """Events in the current stream of one GPU."""

    def __init__(self, device: torch.device) -> None:
        self.name = torch.cuda.get_device_name(device)
        self.device = device

    def hold(self, calls: int) -> None:
        with torch.cuda.device(self.device):
            hold_gpu(calls)

    def mark(self) -> Any:
        """Within the wrapper, which has made its GPU the current one."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def elapsed_us(self, first: Any, second: Any) -> float:
        return float(first.elapsed_time(second)) * 1e3

    def wait(self) -> None:
        torch.cuda.synchronize(self.device)


class CpuTimer:
    """Wall time: calls on a CPU have ended when they return."""

    name = "this machine's CPU"

    def hold(self, calls: int) -> None:
        """Nothing runs beside the calls."""

    def mark(self) -> int:
        return time.perf_counter_ns()

    def elapsed_us(self, first: int, second: int) -> float:
        return (second - first) / 1e3

    def wait(self) -> None:
        """Nothing is left to wait for."""


@dataclass(frozen=True, slots=True)
class Measurable:
    """A graph that Inductor has compiled."""

    source: str
    names: Mapping[str, Any]
    """What is known in its module: kernels, constants."""
    handles: tuple[int, ...]
    """The numbers of its calls, in the order of the report's rows."""
    examples: tuple[Any, ...]
    """Fake inputs."""

    @property
    def timer(self) -> Timer:
        """The clock of the device that it runs on."""
        gpu = self.gpu
        return CpuTimer() if gpu is None else CudaTimer(gpu)

    @property
    def gpu(self) -> torch.device | None:
        """The GPU that the wrapper enters; its inputs may all be numbers."""
        match = _GUARD.search(self.source)
        return None if match is None else torch.device("cuda", int(match[1]))


@dataclass(frozen=True, slots=True)
class TimedCall:
    """One call, measured."""

    call_us: float | None
    """The median over warm runs; None where no run reached it."""
    ending_us: tuple[float, ...] = ()
    """Of the sums with which it ends."""
    ran: KernelChoice | None = None
    """What the GPU has chosen by running all configurations."""


def measure_calls(graph: Measurable, timer: Timer, runs: int = RUNS) -> tuple[TimedCall, ...]:
    """Each call of the graph.

    Raises what torch raises where the inputs cannot be made or the graph refuses them.
    """
    marks: list[tuple[Part, Any]] = []
    call = _marked(graph, lambda number, part=0: marks.append(((number, part), timer.mark())))
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
"""A call's number; 0 for the call itself, or which of the sums that end it."""


def _call_names(source: str) -> Iterator[tuple[int, str]]:
    """The name that each numbered call has."""
    for _, called, numbers in _call_comments(source.splitlines()):
        for number in numbers:
            yield number, called


def _choice(kernel: Any) -> KernelChoice | None:
    """What a kernel of Inductor's is launched with once it has run; None for what is none."""
    launchers: Any = getattr(kernel, "launchers", ())
    return chosen_config(launchers[0].config) if len(launchers) == 1 else None


def chosen_config(config: Any) -> KernelChoice:
    """A configuration of Triton's as plain data."""
    sizes = {name: value for name, value in config.kwargs.items() if type(value) is int}
    return KernelChoice(sizes, config.num_warps, config.num_stages)


def _pairs(marks: list[tuple[Part, Any]]) -> list[tuple[Part, Any, Any]]:
    """The marks before and behind each call; those of a call within another one lie between its own."""
    begun: dict[Part, Any] = {}
    pairs = []
    for number, mark in marks:
        if number in begun:
            pairs.append((number, begun.pop(number), mark))
        else:
            begun[number] = mark
    return pairs


def _marked(graph: Measurable, mark: Callable[..., None]) -> Callable[[list[Any]], Any]:
    """The graph's `call` with a mark before and behind each call that it makes."""
    start = _WRAPPER.search(graph.source)
    text = with_marks(graph.source[start.end() :] if start is not None else graph.source)
    names = {**graph.names, MARK: mark}
    exec(compile(text, "<timed calls>", "exec"), names)  # noqa: S102 (the text that runs anyway)
    call: Callable[[list[Any]], Any] = names["call"]
    return call


MARK = "aotlens_mark"


def with_marks(text: str) -> str:
    """The wrapper's text with marks around what stands under each of Inductor's comments, up to its call.

    Of a kernel's launch the stream and what it works in come first: the call is known by its name.
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
    """Inductor's comments: the number of the line below, the name that is called, the numbers of its calls.

    Several that follow one another are about one call, whose name is the last.
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
    """The first line of what stands there, and the last of the statement that calls that name.

    Where none does before the next comment, only the first statement is taken.
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
    """The lines of the sums right behind a launch."""
    number = last + 1
    while number <= len(lines) and _ENDING.match(lines[number - 1]) is not None:
        yield number
        number += 1


def _random_input(value: Any) -> Any:
    """An input like a fake one: random numbers, zeros for integers, which may be indices."""
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return value.node.hint
    if not isinstance(value, torch.Tensor):
        return value
    sizes, strides = (tuple(map(_size, numbers)) for numbers in (value.shape, value.stride()))
    made = torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
    flat = made.as_strided((made.untyped_storage().nbytes() // made.itemsize,), (1,), 0)
    if value.dtype is torch.bool:
        flat.bernoulli_(0.5)
    elif value.is_floating_point() and value.dtype.itemsize > 1:
        flat.normal_()
    else:
        flat.zero_()
    return made  # filled as a whole, since elements may share a place, as those of an expanded gradient


def _size(size: Any) -> int:
    return size if isinstance(size, int) else int(size.node.hint)
