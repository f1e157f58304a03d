"""The table of unsupported cases: what the engine lacks, and what to do instead.

Each module holds the cases of one subject.  A stage that meets a case raises `unsupported("name", span, …)`,
and behind `torch.compile` that graph runs in eager instead.

Invariant: each case is raised somewhere, and only cases are raised (`tests/test_unsupported.py`).
"""

from aotlens.errors import UnsupportedError
from aotlens.model.report import Span
from aotlens.unsupported import (
    autograd,
    data_dependent,
    export,
    gpu,
    inputs,
    operators,
    outputs,
    python,
    random,
    storage,
    subgraphs,
)
from aotlens.unsupported.case import Case

__all__ = ["CASES", "SUBJECTS", "Case", "unsupported"]

SUBJECTS = (
    inputs,
    outputs,
    storage,
    autograd,
    operators,
    subgraphs,
    python,
    random,
    data_dependent,
    export,
    gpu,
)
"""The modules of the table, in the order of the page."""

CASES: dict[str, Case] = {case.name: case for subject in SUBJECTS for case in subject.CASES}


def unsupported(name: str, span: Span | None = None, /, **values: object) -> UnsupportedError:
    """The error for a case, to be raised by the stage that meets it.

    Args:
        name: the case's name in the table.
        span: the user's expression to blame; None where no line is known.
        values: what stands for `{…}` in the case's text and advice.

    Raises:
        KeyError: the table has no such case, or `values` lacks one of its names.
    """
    case = CASES[name]
    return case.error(case.text.format(**values), span, case.advice.format(**values), name=name)
