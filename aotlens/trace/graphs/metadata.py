"""Read AOTAutograd's analysis of inputs and outputs from the text of its `ViewAndMutationMeta`.

Invariant: only the fields named here are read, so a torch with more fields reads the same, and a missing
field is unknown.
"""

import re
from dataclasses import dataclass

__all__ = ["InputInfo", "Metadata", "OutputInfo", "parse_metadata"]

_FLAG = re.compile(r"(\w+)=(True|False)")
_TYPE = re.compile(r"output_type=<?(?:OutputType\.)?(\w+)")
_BASE = re.compile(r"base_idx=(\d+)")
_DONATED = re.compile(r"bw_donated_idxs=\[([\d,\s]*)\]")
_BASES = re.compile(r"num_intermediate_bases=(\d+)")
MAX_ENTRIES = 200_000


@dataclass(frozen=True, slots=True)
class InputInfo:
    """One `InputAliasInfo`."""

    flags: dict[str, bool]

    def has(self, name: str) -> bool:
        return self.flags.get(name, False)


@dataclass(frozen=True, slots=True)
class OutputInfo:
    """One `OutputAliasInfo`."""

    output_type: str
    base: int | None
    requires_grad: bool


@dataclass(frozen=True, slots=True)
class Metadata:
    """The parts of `ViewAndMutationMeta` that the report shows."""

    inputs: tuple[InputInfo, ...]
    outputs: tuple[OutputInfo, ...]
    donated: frozenset[int] | None
    """Positions among the backward's inputs; None if torch does not say."""
    intermediate_bases: int = 0


def parse_metadata(text: str) -> Metadata | None:
    """Parse the text; None if it has another form."""
    if "input_info=[" not in text:
        return None
    inputs, _, rest = text.partition("input_info=[")[2].partition("output_info=[")
    outputs = rest.partition("num_intermediate_bases=")[0]
    donated, bases = _DONATED.search(rest), _BASES.search(rest)
    return Metadata(
        tuple(InputInfo(_flags(entry)) for entry in inputs.split("InputAliasInfo(")[1:MAX_ENTRIES]),
        tuple(_output(entry) for entry in outputs.split("OutputAliasInfo(")[1:MAX_ENTRIES]),
        frozenset(int(number) for number in re.findall(r"\d{1,9}", donated[1])) if donated else None,
        int(bases[1][:9]) if bases else 0,
    )


def _flags(entry: str) -> dict[str, bool]:
    return {name: value == "True" for name, value in _FLAG.findall(entry)}


def _output(entry: str) -> OutputInfo:
    kind, base = _TYPE.search(entry), _BASE.search(entry)
    return OutputInfo(
        kind[1] if kind else "", int(base[1][:9]) if base else None, _flags(entry).get("requires_grad", False)
    )
