"""The analysis beside torch's own `ViewAndMutationMeta`, on every program where both have an answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from aotlens.compiled import Compiled
from aotlens.errors import AotlensError
from aotlens.ir.slots import FreeTensor
from tests.engine.checking import EagerRun, prepared
from tests.engine.peer_disagreements import DISAGREEMENTS
from tests.engine.peer_metadata import Facts, our_analysis, our_facts, peer_facts, peer_metadata
from tests.programs import Program


@contextmanager
def answering(program: Program) -> Iterator[None]:
    """Within it a refusal, by us or by torch, skips the test: there is nothing to compare."""
    try:
        yield
    except AotlensError as error:
        pytest.skip(f"we refuse it: {error}")
    except Exception as error:  # noqa: BLE001 - the peer refuses in many types
        pytest.skip(f"torch has no answer: {type(error).__name__}: {error}")


def judge_agreement(eager: EagerRun) -> None:
    """Fail the test where torch's analysis has another answer, and no row of `DISAGREEMENTS` says so."""
    program = eager.program
    with program.context():
        given, again = prepared(program)
        with answering(program):
            compiled = our_analysis(given)
        ours, names, tensors = our_facts(compiled)
        if program.name.startswith(UNANSWERED):
            pytest.skip("torch has no answer")
        with answering(program):
            meta = peer_metadata(again)
        _skip_other_questions(compiled, meta)
        theirs = peer_facts(meta, names, tensors)
    _judge(program, ours, theirs)


UNANSWERED = "transforms/linearized"
"""Torch's first pass fails in `torch.func.linearize`, and its thread can take no more derivatives."""


def _skip_other_questions(compiled: Compiled, meta: Any) -> None:
    """Where torch's first pass is asked about other inputs or results than we are."""
    if compiled.captured.bases:
        pytest.skip("torch has its answer only for the synthetic base that it makes of these inputs")
    if any(isinstance(given.slot, FreeTensor) for given in compiled.captured.inputs):
        pytest.skip("tensors from outside are inputs of ours and constants of torch's")
    if len(meta.output_info) != len(compiled.meta.outputs):
        pytest.skip("torch does not see what the function puts into its arguments or its module")


def _judge(program: Program, ours: Facts, theirs: Facts) -> None:
    different = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    unlisted = [
        f"{name}: ours {ours.get(name)}, torch's {theirs.get(name)}"
        for name in different
        if not any(row.covers(program.name, name.split()[-1]) for row in DISAGREEMENTS)
    ]
    assert not unlisted, "\n".join(["disagreements that peer_disagreements.py does not list:", *unlisted])
    for row in DISAGREEMENTS:
        if row.lists(program.name):
            shown = [name for name in different if name.split()[-1] in row.questions]
            assert shown, f"listed as a disagreement, but agrees: {row.reason}"
