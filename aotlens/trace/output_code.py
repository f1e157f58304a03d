"""Read kernels and memory of Inductor's generated code from the logged module's text.

Invariant: the text is scanned line by line and never run; unknown lines are skipped.  Working memory of
libraries is not in the text, so the curve has only the generated code's own allocations.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from aotlens.trace.graphs.tensor_text import Hints, size_value

__all__ = ["Call", "OutputCode", "Step", "code_id", "element_bytes", "parse_code"]

_CALL = re.compile(
    r"^\s+(?:(\w+) = )?((?:triton|cpp_fused|cpp|multi_kernel)_\w+|extern_kernels\.\w+"
    r"|(?:torch\.ops\.|aten\.)[\w.]+)(\.run)?\("
)
_DEFINED = re.compile(r"^(\w+) = async_compile\.(\w+)\(")
_NODES = re.compile(r"# Topologically Sorted Source Nodes: \[(.*?)\](?:, Original ATen: \[(.*?)\])?")
_HANDLE = re.compile(r"# \[Provenance debug handles\] (\S{1,2000}:\d{1,9})")
_ALLOCATED = re.compile(r"^\s+(\w+) = empty_strided_(\w+)\(\((.*?)\), \((.*?)\), torch\.(\w+)\)")
_REUSED = re.compile(r"^\s+(\w+) = (?:reinterpret_tensor\()?(\w+)[,;].*?del (\w+)\b")
_DELETED = re.compile(r"^\s+del ((?:\w+(?:, )?)+)\s*$")
_ASSERTED = re.compile(r"^\s+assert_size_stride\((\w+), \((.*?)\), \((.*?)\)")
_BITS = re.compile(r"(\d+)")
_WIDTHS = {"bool": 1, "float": 4, "double": 8, "half": 2, "long": 8, "int": 4}
MAX_SOURCE = 200_000
MAX_LAUNCH = 20_000


@dataclass(frozen=True, slots=True)
class Call:
    """One launch of a generated kernel, or one call of a library."""

    name: str
    is_generated: bool
    nodes: tuple[str, ...]
    """Names in Dynamo's graph that it computes, from the comment above it; empty without one."""
    operators: tuple[str, ...]
    line: int
    """In the module, from 1."""
    source: str
    arguments: tuple[str, ...] = ()
    """Of the launch of a Triton kernel: names of buffers, and numbers; empty for other calls."""
    text: str = ""
    """The statement that makes the call."""
    handle: str = ""
    """The name of the call in provenance tracking, `extern_kernels.mm:2`; empty without it."""


@dataclass(frozen=True, slots=True)
class Step:
    """Live bytes after one allocation or call."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """One buffer that is alive at the peak."""

    name: str
    bytes: int
    last: str | None
    """The call after which its memory is freed; None for a result."""
    call: int | None
    """The call that first uses it; None if there is none."""


@dataclass(frozen=True, slots=True)
class OutputCode:
    """One generated module."""

    aot_id: str
    """`0_forward`; empty if the text does not say."""
    calls: tuple[Call, ...]
    steps: tuple[Step, ...]
    peak_bytes: int
    peak_step: str
    live_at_peak: tuple[Buffer, ...]
    returned_bytes: int
    is_known: bool
    """False if a size is a symbol without a value, so that the curve has gaps."""
    allocations: tuple[tuple[str, str, str], ...] = ()
    """Each allocated buffer: its name, the text of its sizes, and its dtype."""
    renamed: tuple[tuple[str, str], ...] = ()
    """Each buffer that takes over the memory of another, in order, with the other."""


@dataclass(slots=True)
class _Play:
    """The buffers that are alive, line by line; mutable."""

    live: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By name: the number of the memory, which a buffer may take over from another, and its bytes."""
    steps: list[tuple[str, int]] = field(default_factory=list)
    peak: int = 0
    peak_step: str = ""
    at_peak: tuple[tuple[str, int, int], ...] = ()
    freed: dict[int, str] = field(default_factory=dict)
    """By number of the memory: the last step before it was freed."""
    first_calls: dict[int, int] = field(default_factory=dict)
    is_known: bool = True
    allocations: list[tuple[str, str, str]] = field(default_factory=list)
    renamed: list[tuple[str, str]] = field(default_factory=list)
    _next: int = 0

    def note(self, name: str) -> None:
        total = sum(size for _, size in self.live.values())
        self.steps.append((name, total))
        if total > self.peak:
            self.peak, self.peak_step = total, name
            self.at_peak = tuple((name, number, size) for name, (number, size) in self.live.items())

    def allocate(self, name: str, size: int) -> None:
        self.live[name] = (self._next, size)
        self._next += 1

    def free(self, name: str) -> None:
        entry = self.live.pop(name, None)
        if entry is not None and self.steps:
            self.freed[entry[0]] = self.steps[-1][0]

    def called(self, line: str, call: int) -> None:
        for name in re.findall(r"\bbuf\d+\b", line):
            if name in self.live:
                self.first_calls.setdefault(self.live[name][0], call)


def parse_code(text: str, hints: Hints, saved_bytes: Mapping[str, int] | None = None) -> OutputCode:
    """Return the calls of the module's `call`, and its memory.

    `saved_bytes` are arguments whose memory is freed here: saved values, with their bytes.
    """
    lines = text.split("\n")
    start = _body_start(lines)
    sources = _sources(lines[:start])
    play = _Play()
    for name, size in (saved_bytes or {}).items():
        play.allocate(name, size)
    calls = tuple(_calls(lines, start, sources, play, hints))
    return OutputCode(
        code_id(text),
        calls,
        tuple(Step(name, size) for name, size in play.steps),
        play.peak,
        play.peak_step,
        tuple(
            Buffer(name, size, play.freed.get(number), play.first_calls.get(number))
            for name, number, size in play.at_peak
        ),
        sum(size for _, size in play.live.values()),
        play.is_known,
        tuple(play.allocations),
        tuple(play.renamed),
    )


def code_id(text: str) -> str:
    """Return `0_forward` from the module's first line; empty if it does not say."""
    match = re.match(r"# AOT ID: \['([\w-]{1,80})'\]", text)
    return match[1] if match else ""


def _body_start(lines: list[str]) -> int:
    """Return where `call` begins; the last one, because partitions precede it."""
    starts = [index for index, line in enumerate(lines) if re.match(r"\s*def call\(", line)]
    return starts[-1] if starts else len(lines)


def _sources(lines: list[str]) -> dict[str, str]:
    """Return the definition of each generated kernel, by name."""
    starts = [(index, match[1]) for index, line in enumerate(lines) if (match := _DEFINED.match(line))]
    sources = {}
    for index, name in starts:
        end = next(
            (row for row in range(index + 1, len(lines)) if lines[row].startswith("'''")), len(lines) - 1
        )
        sources[name] = "\n".join(lines[index : end + 1])[:MAX_SOURCE]
    return sources


def _calls(
    lines: list[str], start: int, sources: dict[str, str], play: _Play, hints: Hints
) -> Iterator[Call]:
    nodes, operators, count = (), (), 0  # type: tuple[str, ...], tuple[str, ...], int
    handle = ""
    for number in range(start, len(lines)):
        line = lines[number]
        if line.strip().startswith("return "):
            return
        if match := _NODES.search(line):
            nodes, operators = _listed(match[1]), _listed(match[2] or "")
        elif match := _HANDLE.search(line):
            handle = match[1]
        elif match := _CALL.match(line):
            name = match[2]
            is_generated = name in sources or name.startswith(("triton_", "cpp_fused", "multi_kernel_"))
            play.note(name)
            play.called(line, count)
            count += 1
            source = sources.get(name, line.strip()[:2000])
            arguments = _arguments(line, hints) if match[3] else ()
            text = line.strip()[:MAX_LAUNCH]
            yield Call(name, is_generated, nodes, operators, number + 1, source, arguments, text, handle)
            nodes, operators, handle = (), (), ""
        else:
            _play_line(line, play, hints)


def _arguments(line: str, hints: Hints) -> tuple[str, ...]:
    """Return the arguments of a launch; a size that the log knows is a number."""
    try:
        tree = ast.parse(line.strip()[:MAX_LAUNCH], mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return ()
    texts = [ast.unparse(argument) for argument in tree.args] if isinstance(tree, ast.Call) else []
    values = [(text, size_value(text, hints)) for text in texts]
    return tuple(text if value is None else str(value) for text, value in values)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(", ") if name)


def _play_line(line: str, play: _Play, hints: Hints) -> None:
    if match := _ALLOCATED.match(line):
        size = _size(match[3], match[4], match[5], hints)
        play.is_known = play.is_known and size is not None
        play.allocate(match[1], size or 0)
        play.allocations.append((match[1], match[3], match[5]))
        play.note(match[1])
    elif match := _REUSED.match(line):
        if match[2] == match[3] and match[2] in play.live:
            play.live[match[1]] = play.live.pop(match[2])
        if match[2] == match[3]:
            play.renamed.append((match[1], match[2]))
    elif match := _DELETED.match(line):
        for name in match[1].split(", "):
            play.free(name)


def _size(sizes: str, strides: str, dtype: str, hints: Hints) -> int | None:
    """Return the bytes from the first to the last element."""
    shape = [size_value(size, hints) for size in sizes.split(",") if size.strip()]
    steps = [size_value(step, hints) for step in strides.split(",") if step.strip()]
    if None in shape or None in steps or len(shape) != len(steps):
        return None
    known = [
        (size, step) for size, step in zip(shape, steps, strict=True) if size is not None and step is not None
    ]
    if any(size == 0 for size, _ in known):
        return 0
    return (1 + sum((size - 1) * step for size, step in known)) * element_bytes(dtype)


def element_bytes(dtype: str) -> int:
    """Return the bytes of one element of `torch.DTYPE`."""
    bits = _BITS.search(dtype)
    return _WIDTHS.get(dtype) or (max(1, int(bits[1][:4]) // 8) if bits else 1)
