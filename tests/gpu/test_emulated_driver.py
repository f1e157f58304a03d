"""What would fail on a machine with a GPU and shows without one: forks, and threads of autograd's engine."""

import json
import subprocess
import sys
from typing import Any

import pytest


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.gpu.emulated_driver"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.rotates
def test_the_warm_server_leaves_the_driver_alone_for_its_children(found: dict[str, Any]) -> None:
    """They count the GPUs themselves."""
    assert found["asked"] == []
    assert found["registered"] is False
    assert found["folded"] == 2  # Dynamo still knows the function that they ask by


def test_a_backward_is_recorded_on_the_thread_that_knows_of_the_recording(found: dict[str, Any]) -> None:
    assert found["eager"] == [False]  # so the stand-in is one
    assert found["recorded"] == [True]


def test_a_backward_that_is_compiled_on_another_thread_has_the_callers_settings(
    found: dict[str, Any],
) -> None:
    assert found["compiled"] == [[True, 17], [False, 17]]
    assert found["last"] == "codegen of the backward"  # and its observers
