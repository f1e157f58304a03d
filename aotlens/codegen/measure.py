"""How long each call of a compiled graph takes where it runs: its own wrapper, with marks around each call.

Invariant: the code that is timed is the code that runs; only its wrapper is copied, with two lines more for
each call, and it runs on numbers that are made up here.  The random state is as before.
"""

import ast
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

import torch

from aotlens.torch_api import hold_gpu

WARM, RUNS = 3, 20
"""Runs that are not counted, and those that are."""

_WRAPPER = re.compile(r"^del async_compile$", re.MULTILINE)
"""Kernels are defined above, the functions that call them below."""
_HANDLE = re.compile(r"^\s*# \[Provenance debug handles\] .*:(\d+)$")
"""Inductor's comment above each call, with the number under which it keeps the call's nodes."""


class Timer(Protocol):
    """A clock of the device on which the calls run."""

    name: str
    """What ran them."""

    def hold(self) -> None:
        """Let the device wait, so that it finds calls in its queue and not the time between launches."""

    def mark(self) -> Any:
        """This moment in the device's work."""

    def elapsed_us(self, first: Any, second: Any) -> float:
        """Between two marks, once `wait` has returned."""

    def wait(self) -> None:
        """Until the device has done all that it was given."""


class CudaTimer:
    """Events in the current stream."""

    def __init__(self) -> None:
        self.name = torch.cuda.get_device_name()

    def hold(self) -> None:
        hold_gpu()

    def mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def elapsed_us(self, first: Any, second: Any) -> float:
        return float(first.elapsed_time(second)) * 1e3

    def wait(self) -> None:
        torch.cuda.synchronize()


class CpuTimer:
    """Wall time: calls on a CPU have ended when they return."""

    name = "this machine's CPU"

    def hold(self) -> None:
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
        devices = {value.device.type for value in self.examples if isinstance(value, torch.Tensor)}
        return CudaTimer() if "cuda" in devices else CpuTimer()


def measured_us(graph: Measurable, timer: Timer, runs: int = RUNS) -> tuple[float | None, ...]:
    """The median of each call over warm runs, in microseconds; None for one that no run reached.

    Raises what torch raises where the inputs cannot be made or the graph refuses them.
    """
    marks: list[tuple[int, Any]] = []
    call = _marked(graph, lambda number: marks.append((number, timer.mark())))
    taken: dict[int, list[float]] = {number: [] for number in graph.handles}
    devices = [torch.cuda.current_device()] if isinstance(timer, CudaTimer) else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        inputs = [_made_up(value) for value in graph.examples]
        for run in range(WARM + runs):
            marks.clear()
            timer.hold()
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
    """The wrapper's text with marks around the statement under each of Inductor's comments."""
    lines = text.splitlines()
    ends = {
        node.lineno: node.end_lineno or node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.stmt)
    }
    behind: dict[int, str] = {}
    found: list[str] = []
    waiting: list[int] = []
    for number, line in enumerate(lines, 1):
        handle = _HANDLE.match(line)
        if handle is not None:
            waiting.append(int(handle[1]))
        if waiting and number in ends:
            indent = line[: len(line) - len(line.lstrip())]
            found += [f"{indent}{MARK}({one})" for one in waiting]
            behind[ends[number]] = "\n".join(f"{indent}{MARK}({one})" for one in waiting)
            waiting = []
        found.append(line)
        if number in behind:
            found.append(behind[number])
    return "\n".join(found) + "\n"


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
