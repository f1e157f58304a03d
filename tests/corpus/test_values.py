"""Tensors at exit are compared relative to the largest element of eager's."""

import math
from pathlib import Path

import pytest
import torch

from corpus.records import TensorError, Values
from corpus.values import compare_dumps, compare_tensors


def test_each_tensor_beside_its_own_largest_element() -> None:
    reference = {"a": torch.tensor([2.0, 0.5]), "b": torch.tensor([1.0], dtype=torch.bfloat16)}
    ours = {"a": torch.tensor([2.0, 0.75]), "b": torch.tensor([1.0078125], dtype=torch.bfloat16)}
    assert compare_tensors(ours, reference) == Values(
        (TensorError("a", "float32", 0.125), TensorError("b", "bfloat16", 0.0078125))
    )


def test_a_gradient_that_is_only_rounding_is_compared_with_the_largest_one() -> None:
    reference = {
        "w.grad": torch.tensor([1.0]),
        "bias.grad": torch.tensor([1e-8]),
        "bias": torch.tensor([1e-8]),
    }
    ours = {**reference, "bias.grad": torch.tensor([3e-8]), "bias": torch.tensor([3e-8])}
    errors = {tensor.name: tensor.error for tensor in compare_tensors(ours, reference).tensors}
    assert errors == pytest.approx({"bias": 2.0, "bias.grad": 2e-6, "w.grad": 0.0})


def test_a_sparse_gradient(tmp_path: Path) -> None:
    """An embedding's gradient may hold one row several times."""
    rows = torch.tensor([[1, 1]])
    for name, values in (("ours", [1.5, 0.5]), ("eager", [1.0, 1.0])):
        (tmp_path / name).mkdir()
        gradient = torch.sparse_coo_tensor(rows, torch.tensor(values), (3,), check_invariants=True)
        torch.save({"table.grad": gradient}, tmp_path / name / "rank0.pt")
    compared = compare_dumps(tmp_path / "ours", tmp_path / "eager")
    assert compared.tensors == (TensorError("table.grad", "float32", 0.0),)


def test_names_of_one_run_alone() -> None:
    one = torch.ones(1)
    assert compare_tensors({"a": one, "b": one}, {"a": one, "c": one}) == Values(
        (TensorError("a", "float32", 0.0),), ("b", "c")
    )


@pytest.mark.parametrize(
    ("ours", "reference", "error"),
    [
        (torch.ones(2), torch.ones(3), math.inf),
        (torch.ones(2), torch.ones(2, dtype=torch.float64), math.inf),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), math.inf),
        (torch.tensor([math.nan, 1.0]), torch.tensor([math.nan, 2.0]), 0.5),
        (torch.tensor([math.nan]), torch.tensor([1.0]), math.inf),
        (torch.zeros(2), torch.zeros(2), 0.0),
        (torch.tensor([1e-9]), torch.zeros(1), math.inf),
        (torch.empty(0), torch.empty(0), 0.0),
        (torch.tensor([1j]), torch.tensor([1.0 + 0j]), math.sqrt(2)),
    ],
)
def test_errors(ours: torch.Tensor, reference: torch.Tensor, error: float) -> None:
    assert [tensor.error for tensor in compare_tensors({"a": ours}, {"a": reference}).tensors] == [
        pytest.approx(error)
    ]
