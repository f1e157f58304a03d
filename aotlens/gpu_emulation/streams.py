"""Streams, events and generators of a GPU that is not there.

Invariant: nothing runs beside the script, so waiting and recording do nothing, and time is 0.
"""

from typing import Any

import torch

Real: Any = torch.Generator


class Stream:
    """In the place of `torch.cuda.Stream`, as a context too."""

    device = torch.device("cuda", 0)
    device_index = 0
    cuda_stream = 0
    stream_id = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Device and priority do not matter."""

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *raised: object) -> None:
        """It was not current."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing runs there."""

    def wait_event(self, event: Any) -> None:
        """It has happened."""

    def record_event(self, event: Any = None) -> Any:
        return event or Event()

    def synchronize(self) -> None:
        """Nothing runs."""

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False


class Event:
    """In the place of `torch.cuda.Event`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Whether it takes the time does not matter."""

    def record(self, stream: Any = None) -> None:
        """Nothing runs."""

    def wait(self, stream: Any = None) -> None:
        """It has happened."""

    def synchronize(self) -> None:
        """It has happened."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Any) -> float:
        return 0.0


class _Kind(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Real)


class Generator(metaclass=_Kind):
    """In the place of `torch.Generator`: one for the GPU is a generator of the CPU."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return Real("cpu" if torch.device(device).type == "cuda" else device)
