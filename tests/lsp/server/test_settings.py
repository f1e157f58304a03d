"""Settings of a client: what is taken, and what is refused with one sentence."""

import pytest

from lsp_server.settings import Settings, from_data


@pytest.mark.parametrize("policy", ["default", "budget=0.5", "min-cut,save:hidden", "rules.py::keep"])
def test_a_policy_is_any_that_the_command_line_takes(policy: str) -> None:
    settings, problems = from_data({"policy": policy}, Settings(), at_start=True)
    assert (settings.trace_options().policy, problems) == (policy, ())


@pytest.mark.parametrize("policy", ["best", "budget", 3])
def test_another_policy_is_named_and_the_default_taken(policy: object) -> None:
    settings, problems = from_data({"policy": policy}, Settings(), at_start=True)
    assert settings.policy == "min-cut"
    forms = "min-cut, default, budget=BYTES|FRACTION, save:NAME, recompute:NAME, save:FILE:LINE"
    assert len(problems) == 1
    assert problems[0].startswith(f"aotlens.policy: expected a policy ({forms}")
    assert problems[0].endswith(f"got {policy!r}; using 'min-cut'")
