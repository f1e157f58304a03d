"""Write docs/unsupported.md from the table of unsupported cases and the programs that show them.

python -m scripts.docs.unsupported_page
"""

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from aotlens.unsupported import CASES, SUBJECTS, Case
from tests.programs import PROGRAMS, Program
from tests.unsupported import EXAMPLES
from tests.unsupported.example import Example

PAGE = "docs/unsupported.md"
OPTIONS = 'options=CompileOptions(backend="eager")'
DYNAMIC = 'options=CompileOptions(backend="eager", dynamic=True)'
_TYPE_IGNORE = re.compile(r"  # type: ignore.*")
INTRODUCTION = """# What is unsupported

What the engine cannot compile, one entry per case: what the error says, and what to do instead.

Behind `torch.compile` (`aotlens run`, `backend="aotlens"`) an unsupported graph runs in eager, and the
report says so (AL402); `--strict` turns it into an error. `aotlens.compile` and `functorch.compile`
raise an `UnsupportedError` whose `name` is the entry's. [What ran in eager](eager-code.md) lists what a
script left to eager.

A second derivative is a `RuntimeError` that names the function where the backward lacks something: with
tensor subclasses, with leaves that the function creates, with inputs whose sizes, strides or storage
change, and where it needs random numbers or former values that the policy does not save.

Most entries concern mutations, aliases and autograd at their edges: no library in `corpus/` needs them.
The page is made from `aotlens/unsupported/`; the programs are those that our tests run.
"""


def page() -> str:
    """The text of the page."""
    examples = {example.case: _body(example) for example in EXAMPLES}
    examples |= {case: _source(program) for program in reversed(PROGRAMS) if (case := shown_case(program))}
    parts = [INTRODUCTION]
    for subject in SUBJECTS:
        parts.append(f"## {(subject.__doc__ or '').strip().rstrip('.')}\n")
        parts.extend("\n".join(_entry(case, examples.get(case.name))) for case in subject.CASES)
    return "\n".join(parts)


def _entry(case: Case, example: str | None) -> Iterator[str]:
    yield f"### {case.name}\n"
    yield f"{_sentence(case.text)}\n"
    if case.advice:
        yield f"**Instead:** {case.advice}.\n"
    if example is not None:
        yield "```python"
        yield example
        yield "```\n"


def shown_case(program: Program) -> str | None:
    """The case that a program of the shared list raises; None if it compiles."""
    return next((name for name in (program.unsupported, program.later) if name in CASES), None)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _body(example: Example) -> str:
    """The statements of an example's function, which takes no arguments."""
    lines = inspect.getsource(example.run).rstrip().splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("def "))
    body = textwrap.dedent("\n".join(lines[first + 1 :]))
    return _TYPE_IGNORE.sub("", body).replace("options=EAGER", OPTIONS).replace("options=DYNAMIC", DYNAMIC)


def _source(program: Program) -> str:
    """The program as the list has it, without the decorator that registers it."""
    lines = textwrap.dedent(inspect.getsource(program.function)).rstrip().splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith(("def ", "class ")))
    return "\n".join(lines[first:])


if __name__ == "__main__":
    Path(PAGE).write_text(page(), encoding="utf-8")
