"""The report: the results of one command, as frozen plain data, with its JSON codec.

Invariant: importing this package loads the standard library only, and its records when a name is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aotlens.model.codec import decode, dumps, encode, loads
    from aotlens.model.report import (
        SCHEMA,
        Base,
        BudgetResult,
        Certificate,
        Diagnostic,
        Dimension,
        Edit,
        Fix,
        Frontend,
        FrontierPoint,
        GraphId,
        Input,
        Kernel,
        LiveValue,
        Memory,
        Mode,
        MutationTypeName,
        Output,
        OutputTypeName,
        Owner,
        Partition,
        Phase,
        RecomputedValue,
        Related,
        Report,
        SavedValue,
        Saving,
        Severity,
        Site,
        Span,
        Stage,
        StageNode,
        Target,
        Tensor,
        Totals,
        Use,
        Variable,
        WhatIf,
        Wrapper,
        WrapperStep,
    )

__all__ = [
    "SCHEMA",
    "Base",
    "BudgetResult",
    "Certificate",
    "Diagnostic",
    "Dimension",
    "Edit",
    "Fix",
    "Frontend",
    "FrontierPoint",
    "GraphId",
    "Input",
    "Kernel",
    "LiveValue",
    "Memory",
    "Mode",
    "MutationTypeName",
    "Output",
    "OutputTypeName",
    "Owner",
    "Partition",
    "Phase",
    "RecomputedValue",
    "Related",
    "Report",
    "SavedValue",
    "Saving",
    "Severity",
    "Site",
    "Span",
    "Stage",
    "StageNode",
    "Target",
    "Tensor",
    "Totals",
    "Use",
    "Variable",
    "WhatIf",
    "Wrapper",
    "WrapperStep",
    "decode",
    "dumps",
    "encode",
    "loads",
]

_CODEC = ("decode", "dumps", "encode", "loads")


def __getattr__(name: str) -> Any:
    """Load a name from its module, so that one module of records loads without all the others."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module("aotlens.model.codec" if name in _CODEC else "aotlens.model.report"), name)
    globals()[name] = value
    return value
