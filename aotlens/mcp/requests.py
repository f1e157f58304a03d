"""The arguments of each tool.  Stdlib only; the published input schemas are made of these records."""

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "ApplyFixRequest",
    "DiffRequest",
    "FitRequest",
    "InspectRequest",
    "Part",
    "TargetRequest",
    "VerifyRequest",
    "WhatIfRequest",
    "WhyRequest",
]

Backend = Literal["eager", "inductor"]
Part = Literal[
    "inputs",
    "outputs",
    "left",
    "partition",
    "wrapper",
    "source",
    "kernels",
    "memory",
    "guards",
    "operators",
    "variables",
]
"""Fields of a target that are left out of an answer unless they are asked for; `source` is the wrapper's."""

TIME_LIMIT_S = 600.0
ROWS = 20


@dataclass(frozen=True, slots=True)
class InspectRequest:
    """Either a target to trace or a report to read."""

    target: str | None = None
    """`SCRIPT` or `SCRIPT::name` to trace, relative to the server's root; needs `run_user_code`."""
    run_user_code: bool = False
    """Must be true with `target`: the script is imported and run in a child process."""
    report: str | None = None
    """Instead of `target`: the `report` of an earlier answer, a file that `aotlens inspect --format json`
    wrote, or a log of TORCH_TRACE. Reading it runs nothing."""
    argv: tuple[str, ...] = ()
    """The script's own arguments."""
    parts: tuple[Part, ...] = ()
    """What `details` shall hold of each target; empty for none. `wrapper` has the steps of each call,
    `source` also the whole module text that runs."""
    stage: str | None = None
    """A stage whose program `details` shall hold: `captured`, `functional`, `joint`, `forward`, `backward`,
    `inference`."""
    rows: int = ROWS
    """How many rows of each list an answer holds at most; `left_out` names those that were cut."""
    backend: Backend = "eager"
    """`inductor` also generates kernels."""
    dynamic: bool = False
    """Trace with symbolic sizes."""
    policy: str = "min-cut"
    """What is saved for the backward, as `--policy` takes it: `min-cut`, `default`, `save:NAME`,
    `recompute:NAME`; with commas for several."""
    memory_budget: str | None = None
    """Bytes (`64MiB`) or a fraction (`0.5`) of what the policy `default` saves."""
    gpu: str | None = None
    """Also report the kernels for this GPU, which need not be present: `h100`, `sm_90`."""
    fake: bool = False
    """Run the script on tensors that hold no memory, for a model larger than this machine."""
    time_limit_s: float = TIME_LIMIT_S


@dataclass(frozen=True, slots=True)
class WhyRequest:
    """Either a script to run or a report to read."""

    script: str | None = None
    """A script to run to its end, relative to the server's root; needs `run_user_code`."""
    run_user_code: bool = False
    """Must be true with `script`: it runs in a child process, with its own backend."""
    report: str | None = None
    """Instead of `script`: the `report` of an earlier answer, a file that `aotlens why --format json` wrote,
    or a log of TORCH_TRACE. Reading it runs nothing."""
    argv: tuple[str, ...] = ()
    """The script's own arguments."""
    try_fixes: bool = False
    """Also run edited copies of the script, and report the edits that keep its results."""
    forecast: bool = False
    """Stop after the first calls, and report which guards fail for other sizes, dtypes, modes and numbers."""
    vary: tuple[str, ...] = ()
    """The same for these values alone: `x.shape[0]=1,8,9`, `x.dtype=float64`, `k=2,None`, `eval`,
    `no_grad`."""
    guards: bool = False
    """Also time the guards and count calls."""
    rows: int = ROWS
    """How many rows of each list an answer holds at most; `left_out` names those that were cut."""
    time_limit_s: float = TIME_LIMIT_S


@dataclass(frozen=True, slots=True)
class FitRequest:
    """A script whose step is measured, or a report that says so already."""

    script: str | None = None
    """A script to run on tensors without memory, relative to the server's root; needs `run_user_code`."""
    run_user_code: bool = False
    """Must be true with `script`: it runs in a child process."""
    report: str | None = None
    """Instead of `script`: the `report` of an earlier answer, or a file that `aotlens fit --format json`
    wrote. Reading it runs nothing."""
    argv: tuple[str, ...] = ()
    """The script's own arguments."""
    gpu: str | None = None
    """Also report whether the step fits this GPU, which need not be present: `h100`, `a100`."""
    real: bool = False
    """Run on real tensors: for a script whose sizes depend on values."""
    rows: int = ROWS
    """How many rows of each list an answer holds at most; `left_out` names those that were cut."""
    time_limit_s: float = TIME_LIMIT_S


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """A target whose compiled calls are compared with eager."""

    target: str
    """`SCRIPT` or `SCRIPT::name`, relative to the server's root."""
    run_user_code: bool = False
    """Must be true: the script is imported and run in a child process."""
    argv: tuple[str, ...] = ()
    """The script's own arguments."""
    backend: Backend = "inductor"
    dynamic: bool = False
    """Compile with symbolic sizes."""
    policy: str = "min-cut"
    """As for `inspect`."""
    memory_budget: str | None = None
    time_limit_s: float = TIME_LIMIT_S


@dataclass(frozen=True, slots=True)
class WhatIfRequest:
    """Changes of what is saved, each answered by itself."""

    target: str
    """`SCRIPT` or `SCRIPT::name`, relative to the server's root."""
    changes: tuple[str, ...]
    """`save:NAME` or `recompute:NAME`, with the user's names or those of nodes; with commas for several at
    once."""
    run_user_code: bool = False
    """Must be true: the script is imported and run in a child process."""
    argv: tuple[str, ...] = ()
    """The script's own arguments."""
    policy: str = "min-cut"
    """The policy that is changed."""
    memory_budget: str | None = None
    time_limit_s: float = TIME_LIMIT_S


TargetRequest = InspectRequest | VerifyRequest | WhatIfRequest
"""What traces a target."""


@dataclass(frozen=True, slots=True)
class DiffRequest:
    """Either two reports, or a target and git revisions."""

    before: str | None = None
    """The `report` of an earlier answer, or a report file."""
    after: str | None = None
    """The same, for the newer one."""
    git: str | None = None
    """Instead of both: revisions at which `target` is traced: `main..HEAD`, `main...HEAD`, or `main` for
    main and the working tree. Needs `run_user_code`."""
    target: str | None = None
    """With `git`: `SCRIPT` or `SCRIPT::name`, relative to the server's root."""
    run_user_code: bool = False
    """Must be true with `git`: the script of both revisions is run, each in a child process."""
    argv: tuple[str, ...] = ()
    """With `git`: the script's own arguments."""
    rows: int = ROWS
    """How many rows of each list an answer holds at most; `left_out` names those that were cut."""
    time_limit_s: float = TIME_LIMIT_S


@dataclass(frozen=True, slots=True)
class ApplyFixRequest:
    """One of a report's fixes: first shown, then written."""

    report: str
    """The `report` of an earlier answer, or a report file."""
    fix: int
    """Its number in the `fixes` of that answer."""
    write: bool = False
    """Write the files. The first call leaves this out, and shows the diff."""
    token: str | None = None
    """With `write`: the `token` of the answer that showed the diff."""
