"""How long each call of a compiled graph takes where it runs: its own wrapper, with marks around each call.

Invariant: the code that is timed is the code that runs; only its wrapper is copied, with two lines more for
each call, and it runs on numbers that are made up here.  The random state is as before.
"""

import ast
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

import torch

from aotlens.torch_api import hold_gpu

WARM, RUNS = 3, 20
"""Runs that are not counted, and those that are."""

_WRAPPER = re.compile(r"^del async_compile$", re.MULTILINE)
"""Kernels are defined above, the functions that call them below."""
_HANDLE = re.compile(r"^\s*# \[Provenance debug handles\] (.*):(\d+)$")
"""Inductor's comment above each call, with the call's name, and the number under which it keeps its nodes."""


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
        """The GPU among the devices of its inputs."""
        devices = (value.device for value in self.examples if isinstance(value, torch.Tensor))
        return next((device for device in devices if device.type == "cuda"), None)


def measured_us(graph: Measurable, timer: Timer, runs: int = RUNS) -> tuple[float | None, ...]:
    """The median of each call over warm runs, in microseconds; None for one that no run reached.

    Raises what torch raises where the inputs cannot be made or the graph refuses them.
    """
    marks: list[tuple[int, Any]] = []
    call = _marked(graph, lambda number: marks.append((number, timer.mark())))
    taken: dict[int, list[float]] = {number: [] for number in graph.handles}
    devices = [] if graph.gpu is None else [graph.gpu.index or 0]
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        inputs = [_made_up(value) for value in graph.examples]
        for run in range(WARM + runs):
            marks.clear()
            timer.hold(len(graph.handles))
            call(list(inputs))
            timer.wait()
            for number, first, second in _pairs(marks) if run >= WARM else ():
                taken.setdefault(number, []).append(timer.elapsed_us(first, second))
    return tuple(median(taken[number]) if taken[number] else None for number in graph.handles)


def _pairs(marks: list[tuple[int, Any]]) -> list[tuple[int, Any, Any]]:
    """The marks before and behind each call; those of a call within another one lie between its own."""
    begun: dict[int, Any] = {}
    found = []
    for number, mark in marks:
        if number in begun:
            found.append((number, begun.pop(number), mark))
        else:
            begun[number] = mark
    return found


def _marked(graph: Measurable, mark: Callable[[int], None]) -> Callable[[list[Any]], Any]:
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
    for first, called, numbers in _noted(lines):
        begin, last = _of_call(lines, ends, first, called)
        if begin is not None:
            indent = lines[begin - 1][: len(lines[begin - 1]) - len(lines[begin - 1].lstrip())]
            marks = [f"{indent}{MARK}({one})" for one in numbers]
            before.setdefault(begin, []).extend(marks)
            behind.setdefault(last, []).extend(marks)
    found: list[str] = []
    for number, line in enumerate(lines, 1):
        found += (*before.get(number, ()), line, *behind.get(number, ()))
    return "\n".join(found) + "\n"


def _noted(lines: list[str]) -> Iterator[tuple[int, str, list[int]]]:
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


def _of_call(lines: list[str], ends: dict[int, int], first: int, called: str) -> tuple[int | None, int]:
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


def _made_up(value: Any) -> Any:
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
