"""Streams, events and generators of an emulated GPU.

Invariant: nothing runs asynchronously, so waiting and recording do nothing, and elapsed time is 0.
"""

from typing import Any

import torch

_RealGenerator: Any = torch.Generator


class Stream:
    """Replaces `torch.cuda.Stream`, also as a context manager."""

    device = torch.device("cuda", 0)
    device_index = 0
    cuda_stream = 0
    stream_id = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Device and priority do not matter."""

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *raised: object) -> None:
        """Nothing to restore: it was not made current."""

    def wait_stream(self, stream: Any) -> None:
        """No-op: nothing runs on the stream."""

    def wait_event(self, event: Any) -> None:
        """No-op: the event has happened."""

    def record_event(self, event: Any = None) -> Any:
        return event or Event()

    def synchronize(self) -> None:
        """No-op: nothing runs."""

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False


class Event:
    """Replaces `torch.cuda.Event`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Whether it takes the time does not matter."""

    def record(self, stream: Any = None) -> None:
        """No-op: nothing runs."""

    def wait(self, stream: Any = None) -> None:
        """No-op: the event has happened."""

    def synchronize(self) -> None:
        """No-op: the event has happened."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Any) -> float:
        return 0.0


class _GeneratorMeta(type):
    """Makes real generators instances of the replacement."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _RealGenerator)


class Generator(metaclass=_GeneratorMeta):
    """Replaces `torch.Generator`: a CUDA generator is a CPU generator."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return _RealGenerator("cpu" if torch.device(device).type == "cuda" else device)
