"""Values that the user selects to decide the other way, and the texts that make these decisions permanent.

Invariant: the policy file asks for the decisions of `change_of`, and the selective checkpoint saves the
values that the what-if of that change saves; so all of them have the same numbers.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from aotlens.model.report import Partition, RecomputedValue, SavedValue, Stage, Target, WhatIf

__all__ = [
    "change_of",
    "checkpoint_call",
    "opposite",
    "policy_file_text",
    "policy_option",
    "selective_checkpoint_text",
    "selective_saves",
    "terms_of",
]

FUNCTION = "keep"
"""The name of the function in a policy file."""

_POLICY_FILE = '''\
"""What {script} saves for the backward, as selected in aotlens.

Use it:  aotlens inspect {script} --policy {option}
"""

SAVE = frozenset({save})
RECOMPUTE = frozenset({recompute})


def {function}(value):
    """Return "save" or "recompute" for the selected values; None leaves the others to the solver."""
    if value.name in SAVE:
        return "save"
    if value.name in RECOMPUTE:
        return "recompute"
    return None
'''

_CHECKPOINT = '''\
"""Selective activation checkpoint of {target}, as selected in aotlens: {saved_text}.

Use it:  {use}
An operator with several results saves all of them.
"""

from collections import Counter

from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

SAVED_CALLS = {calls}
"""By operator, the calls (0 is the first) whose results are saved; all other calls run again."""


def context_fn():
    """Return the contexts of the forward and of its recomputation; `checkpoint` calls this once per call."""
    counts = {{False: Counter(), True: Counter()}}

    def policy(context, operator, *args, **kwargs):
        calls = counts[context.is_recompute]
        number = calls[str(operator)]
        calls[str(operator)] += 1
        if number in SAVED_CALLS.get(str(operator), ()):
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)
'''


def opposite(value: SavedValue | RecomputedValue) -> str | None:
    """Return the policy override that reverses the decision; None where that would be wrong."""
    if value.freedom == "forced":
        return None
    return f"{'recompute' if isinstance(value, SavedValue) else 'save'}:{value.node}"


def terms_of(partition: Partition, nodes: Collection[str]) -> tuple[str, ...]:
    """Return the overrides that reverse the decisions about these nodes, saved values first."""
    values: tuple[SavedValue | RecomputedValue, ...] = (*partition.saved, *partition.recomputed)
    terms = (opposite(value) for value in values if value.node in nodes)
    return tuple(dict.fromkeys(term for term in terms if term is not None))


def change_of(partition: Partition, nodes: Collection[str]) -> str:
    """Return the overrides of `terms_of` as one what-if: `recompute:addmm_3,save:gelu`."""
    return ",".join(terms_of(partition, nodes))


def policy_option(partition: Partition, nodes: Collection[str], file: str) -> str | None:
    """Return the value of `--policy` that uses a policy file; None if the policy has a function already.

    The policy's own overrides of the selected values are dropped: the what-if replaces them too.
    """
    terms = partition.policy.split(",")
    if any("::" in term for term in terms):
        return None
    own = [term for term in terms if term.partition(":")[2] not in nodes or ":" not in term]
    return ",".join([*own, f"{file}::{FUNCTION}"])


def policy_file_text(partition: Partition, nodes: Collection[str], script: str, option: str) -> str:
    """Return a policy file: a function over one value that reverses the decisions about these nodes."""
    terms = [term.partition(":") for term in terms_of(partition, nodes)]
    return _POLICY_FILE.format(
        script=script,
        option=option,
        function=FUNCTION,
        save=_set_text(name for decision, _, name in terms if decision == "save"),
        recompute=_set_text(name for decision, _, name in terms if decision == "recompute"),
    )


def _set_text(names: Iterable[str]) -> str:
    """Return a set of strings as Python text, one line each if they do not fit on one."""
    quoted = [f'"{name}"' for name in names]
    if not quoted:
        return ""
    line = ", ".join(quoted)
    return f"{{{line}}}" if len(line) < 80 else "{\n    " + ",\n    ".join(quoted) + ",\n}"


def selective_saves(partition: Partition, answer: WhatIf) -> tuple[str, ...]:
    """Return the nodes that a what-if saves and that the graph computes."""
    computed = [value.node for value in partition.saved if value.bytes and value.op]
    still_saved = [node for node in computed if node not in answer.no_longer_saved]
    return tuple(dict.fromkeys((*still_saved, *answer.newly_saved)))


def selective_checkpoint_text(target: Target, saved: Collection[str]) -> str | None:
    """Return Python text with a `context_fn` for `torch.utils.checkpoint` that saves these nodes.

    None if a saved value is not the result of an operator that eager runs: a decomposition computes it.
    """
    stage = target.stage("captured")
    calls = dict(_call_numbers(stage)) if stage is not None else {}
    if any(node not in calls for node in saved):
        return None
    by_operator: dict[str, set[int]] = {}
    for node in saved:
        operator, number = calls[node]
        by_operator.setdefault(operator, set()).add(number)
    rows = [f'    "{operator}": {sorted(numbers)!r},' for operator, numbers in sorted(by_operator.items())]
    count = sum(map(len, by_operator.values()))
    return _CHECKPOINT.format(
        target=target.qualname,
        use=checkpoint_call(target, "*args"),
        saved_text=f"it saves the results of {count} call{'' if count == 1 else 's'}",
        calls="\n".join(("{", *rows, "}")) if rows else "{}",
    )


def checkpoint_call(target: Target, arguments: str) -> str:
    """Return the call that uses the context function: of the module, where the target is its `forward`."""
    owner, _, method = target.qualname.rpartition(".")
    called = "module" if owner and method == "forward" else target.qualname
    return f"checkpoint({called}, {arguments}, use_reentrant=False, context_fn=context_fn)"


def _call_numbers(stage: Stage) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield each node with its operator and the number of the call among those of that operator.

    A part of a tuple belongs to the call that returns the tuple.
    """
    counts: Counter[str] = Counter()
    calls: dict[str, tuple[str, int]] = {}
    for node in stage.nodes:
        if node.op != "call_function":
            continue
        if node.target.startswith("getitem") and node.inputs[:1] and node.inputs[0] in calls:
            calls[node.name] = calls[node.inputs[0]]
        else:
            calls[node.name] = (node.target, counts[node.target])
            counts[node.target] += 1
        yield node.name, calls[node.name]
