"""Find the user's function of a compilation: its name, its file and its first line.

Invariant: a name or a line of torch's own code is never shown where the log has the user's.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from weakref import WeakKeyDictionary

from aotlens.model.report import AFTER
from aotlens.model.spans import is_library_path
from aotlens.trace.facts import CompilationFacts
from aotlens.trace.graphs.records import Line
from aotlens.trace.logs.reader import Process
from aotlens.trace.source.lines import Locate, enclosing_name, qualified_name

__all__ = ["CompiledFunction", "compiled_function", "logged_frames"]

_RESUMED = re.compile(r"torch_dynamo_resume_in_(\w+|<\w+>)_at_(\d{1,9})$")
_WRAPPER_FILE = "torch/_dynamo/external_utils.py"
_WRAPPED = re.compile(r"___check_type_id\(L\['fn'\], \d+\), type=<class '(?:\w+\.)*(\w+)'>")
_FRAME = re.compile(r'^\s*File "(.+?)", line (\d{1,9}), in (\S+)\n\s+(.*)$', re.MULTILINE)
MAX_BREAKS = 2_000
"""Graph breaks of a process whose lines are remembered."""
_BREAK_TEXTS: WeakKeyDictionary[Process, Mapping[tuple[str, int], str]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class CompiledFunction:
    """The user's function of a compilation."""

    file: str
    line: int
    name: str
    """As the user writes it: `Net.forward`."""
    part: str
    """Empty, or `after line 14` for a resume function."""
    is_call: bool = False
    """True if the line is that of the call: for a module of a library, Dynamo compiles its own wrapper."""
    break_line: Line | None = None
    """For a resume function the logged line of the graph break, with its text if the log has it."""

    @property
    def first_line(self) -> Line:
        """Return its first line: at the graph break for a resume function, else at its definition."""
        if self.break_line is not None:
            return self.break_line
        return Line(self.file, self.line, "" if self.is_call else self.name, "")

    @property
    def qualname(self) -> str:
        return f"{self.name}{AFTER}{self.part.rpartition(' ')[2]}" if self.part else self.name


def compiled_function(facts: CompilationFacts, locate: Locate) -> CompiledFunction:
    """Return the compiled function, from the metrics or, if the compilation never ended, from its start."""
    frame = facts.frame
    name = facts.metric("co_name") or (frame.function if frame else "")
    file = facts.metric("co_filename") or (frame.file if frame else "")
    number = facts.metric("co_firstlineno") or str(frame.line if frame else 0)
    line = int(number) if number.isdigit() and len(number) < 10 else 0
    if name == "inner" and file.endswith(_WRAPPER_FILE) and (wrapped := _wrapped(facts)) is not None:
        return wrapped
    if not name and (first := _first_of_frame(facts)) is not None:
        return compiled_function(first, locate)
    resumed = _RESUMED.search(name)
    if resumed is None:
        span = locate(Line(file, line, name, ""), None)
        return CompiledFunction(file, line, qualified_name(span.file, span.line, name) or "?", "")
    broken = int(resumed[2])
    stopped = Line(file, broken, "", _texts_at_breaks(facts.process).get((file, broken), ""))
    span = locate(stopped, None)
    own = enclosing_name(span.file, span.line, resumed[1])
    return CompiledFunction(file, line, own, f"after line {span.line}", break_line=stopped)


def _first_of_frame(facts: CompilationFacts) -> CompilationFacts | None:
    """Return an earlier compilation of the same code: the one that reaches the recompile limit names none."""
    for compilation in facts.process.compilations:
        if compilation is facts.compilation:
            return None
        first = CompilationFacts(compilation)
        if compilation.code_id == facts.compilation.code_id and first.metric("co_name"):
            return first
    return None


def _texts_at_breaks(process: Process) -> Mapping[tuple[str, int], str]:
    """Return the text of each line that broke a graph, by file and number; read once for a process.

    A resume function has the number only, with which its line cannot be found in a file that has changed.
    """
    texts = _BREAK_TEXTS.get(process)
    if texts is None:
        records = (
            record
            for compilation in process.compilations
            if compilation.has("dynamo_graph_break_reason")
            for record in compilation.records("dynamo_graph_break_reason")
        )
        frames = (logged_frames(process.text(record)) for record in islice(records, MAX_BREAKS))
        texts = {(frame.file, frame.line): frame.code for lines in frames for frame in lines}
        _BREAK_TEXTS[process] = texts
    return texts


def _wrapped(facts: CompilationFacts) -> CompiledFunction | None:
    """Return the module that Dynamo's own wrapper calls, at the line of the user's call; None if unknown."""
    module = _WRAPPED.search(facts.text("dynamo_cpp_guards_str"))
    caller = next((frame for frame in reversed(facts.stack) if not is_library_path(frame.file)), None)
    if module is None or caller is None:
        return None
    return CompiledFunction(caller.file, caller.line, f"{module[1]}.forward", "", is_call=True)


def logged_frames(text: str) -> list[Line]:
    """Return the frames of a traceback in a text."""
    return [Line(match[1], int(match[2]), match[3], match[4].strip()) for match in _FRAME.finditer(text)]
