"""The fake mode in which the direct frontend runs a function."""

from typing import Any

import torch

from aotlens.torch_api.fake import FakeTensor, FakeTensorMode, with_lazy_shape_env
from aotlens.torch_api.operators import pytree
from aotlens.torch_api.symbolic import make_shape_env


def fake_mode_for(given: Any, dynamic: bool, ragged: bool) -> FakeTensorMode:
    """The mode of fake arguments, with its symbols; a fresh one for real arguments."""
    for leaf in pytree.tree_leaves(given):
        if isinstance(leaf, FakeTensor):
            return leaf.fake_mode
    symbolic = dynamic or ragged
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=make_shape_env() if symbolic else None)
    return with_lazy_shape_env(mode)


def has_ragged(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a jagged nested tensor is among them, whose ragged size needs an environment of sizes."""
    return any(map(is_jagged, pytree.tree_leaves((args, kwargs))))


def is_jagged(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.jagged
