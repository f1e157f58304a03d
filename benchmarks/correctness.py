"""Programs on which released compilers were wrong: ours and the installed torch's, both compared with eager.

Each program is called several times, with other values and with writes to its results; everything that a
caller can see is compared.  `aot_function` is torch's engine with its min-cut partition, `torch.compile` the
same behind Dynamo, where a graph break may leave a program to eager.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from functorch.compile import aot_function, aot_module, min_cut_rematerialization_partition, nop
from torch import nn
from torch._dynamo.backends.common import aot_autograd

import aotlens
from aotlens.options import CompileOptions
from aotlens.verify.compare import Difference
from benchmarks.harness import Cell, Table, publish
from tests.engine.checking import check
from tests.programs import PROGRAMS, Program
from tests.programs.corpus import CORPUS, Known

Compiler = Callable[[Callable[..., Any], tuple[Any, ...]], Callable[..., Any]]

WRONG = frozenset({"value", "mutation", "gradient", "backward mutation", "dtype", "shape", "structure"})
"""Kinds of difference in values; the others are differences in properties of equal values."""
EQUAL = "equal"


def ours(known: Known) -> Compiler:
    options = CompileOptions(backend="eager", policy=known.policy)
    return lambda fn, args: aotlens.compile(fn, options=options)


def engine_alone(fn: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
    make = aot_module if isinstance(fn, nn.Module) else aot_function
    compiled = make(fn, fw_compiler=nop, bw_compiler=nop, partition_fn=min_cut_rematerialization_partition)
    return lambda *inputs: as_tuple(compiled(*inputs))


def as_tuple(result: Any) -> Any:
    """Convert its list to the tuple of eager: this difference is not compared here."""
    return tuple(result) if type(result) is list else result


def behind_dynamo(fn: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=nop, bw_compiler=nop, partition_fn=min_cut_rematerialization_partition)
    compiled: Callable[..., Any] = torch.compile(fn, backend=backend)
    return compiled


def budgeted(known: Known) -> AbstractContextManager[Any]:
    """Return the peer's own setting for the policy of a case."""
    if not known.policy.startswith("budget="):
        return nullcontext()
    budget = float(known.policy.removeprefix("budget="))
    patched: AbstractContextManager[Any] = torch._functorch.config.patch(activation_memory_budget=budget)
    return patched


def verdict(program: Program, compiler: Compiler) -> str:
    """Return a program's outcome in a word or two."""
    try:
        outcome = check(program, compiler)
    except Exception as error:  # noqa: BLE001 (the peer's own failures are results here)
        return f"fails: {type(error).__name__}"
    if outcome.refusal is not None:
        return "refused"
    differences = [
        difference for difference in outcome.differences if difference.kind not in program.tolerated
    ]
    return _outcome_text(differences) if differences else EQUAL


def _outcome_text(differences: list[Difference]) -> str:
    failed = next((difference for difference in differences if difference.kind == "error"), None)
    if failed is not None:
        return f"fails: {failed.actual.partition(':')[0]}"
    worst = next((difference for difference in differences if difference.kind in WRONG), None)
    if worst is not None:
        return f"wrong: {worst.kind}"
    return f"differs: {differences[0].kind}"


def rows() -> Iterator[tuple[str, ...]]:
    programs = {program.name: program for program in PROGRAMS}
    for known in CORPUS:
        yield (f"{known.case}:", "", "", "")
        for name in known.programs:
            mine = verdict(programs[name], ours(known))
            with budgeted(known):
                theirs = [verdict(programs[name], compiler) for compiler in (engine_alone, behind_dynamo)]
            yield (name.partition("/")[2], mine, *theirs)


def count(column: int, rows_so_far: list[tuple[Cell, ...]]) -> str:
    verdicts = [row[column] for row in rows_so_far if row[column]]
    return f"{verdicts.count(EQUAL)} of {len(verdicts)}"


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    table_rows: list[tuple[Cell, ...]] = list(rows())
    table_rows.append(("equal to eager", *map(partial(count, rows_so_far=table_rows), (1, 2, 3))))
    note = (
        "Every program against eager: results, gradients, changed inputs, shared memory, strides,"
        " `requires_grad`, version counters, random state, errors. `wrong`: other numbers; `differs`: another"
        " fact about the same numbers; `fails`: an error that eager does not raise."
    )
    columns = ("where compilers were wrong", "ours", "aot_function", "torch.compile")
    publish("correctness", [Table("Correctness", columns, tuple(table_rows), note)])


if __name__ == "__main__":
    main()
