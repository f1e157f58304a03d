"""Which capture of a report is written as a module of its own, and how captures are told apart."""

from aotlens.report.records import Target


def described(target: Target) -> str:
    """Qualified name and the tensors that the user gives: `Block.forward(f32[8, 16])`."""
    tensors = (
        row.tensor.short() for row in target.inputs if row.tensor is not None and row.kind == "UserInput"
    )
    return f"{target.qualname}({', '.join(tensors)})"


def same_capture(targets: tuple[Target, ...], shown: Target) -> Target | None:
    """The capture of another trace of the same script that is the one shown; None when it has none."""
    alike = [target for target in targets if target.qualname == shown.qualname]
    return next((target for target in alike if described(target) == described(shown)), None)
