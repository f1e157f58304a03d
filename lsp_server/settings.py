"""The user's settings, under `aotlens.*`, with defaults.

Invariant: an invalid value never stops the server: one message names it, and its default is used.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from aotlens.errors import UserError
from aotlens.settings import TRACE_SETTINGS, Setting, project_settings
from aotlens.worker.protocol import TraceOptions


@dataclass(frozen=True, slots=True)
class Settings:
    """One value per setting; `from_data` reads them from the client's data."""

    trace: str = "manual"
    """`manual`: only on a command; `onSave`: also on save, in a trusted workspace."""
    trusted: bool | None = None
    """True and False are the client's statement about the workspace; None when it made none (only
    `manual`)."""
    python: str | None = None
    """The interpreter that traces; None for the server's own."""
    args: tuple[str, ...] = ()
    """`sys.argv[1:]` of traced scripts."""
    backend: str = "eager"
    dynamic: bool = False
    chosen: frozenset[str] = frozenset()
    """The fields that the client set; the others may come from `[tool.aotlens]`."""
    policy: str = "min-cut"
    """A policy, as parsed by `aotlens.policy.Policy.parse`."""
    gpu: str | None = None
    """Also show the kernels for this GPU, by name or as `sm_90`; the machine need not have it."""
    time_limit_s: float = 120.0
    memory_limit_mib: int | None = None
    inlay_shapes: bool = True
    inlay_saved: bool = True
    inlay_mutations: bool = True
    code_lens: bool = True
    virtual_documents: bool = False
    """The client reads `aotlens:` documents by the request `aotlens/document`; else files are written."""
    terminal: bool = False
    """The client has a command `aotlens.openTui` that runs the terminal app; lenses then offer it."""
    status: bool = False
    """The client accepts the notification `aotlens/status`."""

    def for_file(self, path: str) -> "Settings":
        """Return the settings with those of the file's project in place of defaults.

        Raises:
            UserError: as `project_settings`.
        """
        project = project_settings(path)
        return replace(self, **{name: value for name, value in project.items() if name not in self.chosen})

    def with_gpu(self, gpu: str | None) -> "Settings":
        """Return the settings with a GPU that the user chose, also for none."""
        return replace(self, gpu=gpu, chosen=self.chosen | {"gpu"})

    def trace_options(self) -> TraceOptions:
        return TraceOptions(self.backend, self.dynamic, self.policy, gpu=self.gpu)

    @property
    def memory_limit_bytes(self) -> int | None:
        return None if self.memory_limit_mib is None else self.memory_limit_mib << 20

    @property
    def may_trace(self) -> bool:
        return self.trusted is not False

    @property
    def traces_on_save(self) -> bool:
        return self.trace == "onSave" and self.trusted is True


@dataclass(frozen=True, slots=True)
class Check:
    """Which values a setting accepts."""

    accepts: Callable[[object], bool]
    expected: str
    """The accepted values in words, for the message about another one."""


def _one_of(*values: str) -> Check:
    return Check(lambda value: value in values, " or ".join(f'"{value}"' for value in values))


def _number(low: float) -> Check:
    def fits(value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and value > low

    return Check(fits, f"a number above {low:g}")


def _optional(check: Check) -> Check:
    return Check(lambda value: value is None or check.accepts(value), f"{check.expected}, or null")


def _is_strings(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _shared(setting: Setting) -> Check:
    """Return the check of a setting that the command line and pyproject.toml have too."""

    def fits(value: object) -> bool:
        if setting.field == "gpu" and value in (None, ""):
            return True
        try:
            return setting.kind.read(value) is not None
        except UserError:
            return False

    expected = setting.kind.accepts
    return Check(fits, f"{expected}, or null" if setting.field == "gpu" else expected)


BOOL = Check(lambda value: isinstance(value, bool), "true or false")
TEXT = Check(lambda value: isinstance(value, str), "a string")

SETTINGS: dict[str, tuple[str, Check]] = {
    "trace": ("trace", _one_of("manual", "onSave")),
    "trusted": ("trusted", _optional(BOOL)),
    "python": ("python", _optional(TEXT)),
    "args": ("args", Check(_is_strings, "a list of strings")),
    **{setting.editor: (setting.field, _shared(setting)) for setting in TRACE_SETTINGS},
    "memoryLimitMiB": ("memory_limit_mib", _optional(_number(0))),
    "inlayHints.shapes": ("inlay_shapes", BOOL),
    "inlayHints.saved": ("inlay_saved", BOOL),
    "inlayHints.mutations": ("inlay_mutations", BOOL),
    "codeLens": ("code_lens", BOOL),
    "virtualDocuments": ("virtual_documents", BOOL),
    "terminal": ("terminal", BOOL),
    "status": ("status", BOOL),
}
"""For each name in the settings: the field, and the check of its value."""

CLIENT_ONLY = ("trusted", "virtualDocuments", "terminal", "status")
"""Settings about the client itself and the workspace.

Read from `initializationOptions` alone: a workspace's settings file must not grant itself trust.
"""


def from_data(data: object, base: Settings, at_start: bool) -> tuple[Settings, tuple[str, ...]]:
    """Return `base` with the values of `data`, and one sentence for each invalid value.

    Keys may be dotted (`inlayHints.shapes`) or nested. A key missing from `data` gets its default, except
    those that only the start may set.
    """
    if data is None:
        return base, ()
    if not isinstance(data, Mapping):
        return base, (f"aotlens: settings must be an object, got {type(data).__name__}; nothing changed",)
    result, problems = _defaults(base, at_start), []
    for name, value in _flatten(data):
        if name not in SETTINGS:
            problems.append(f"aotlens.{name}: no such setting; known are {', '.join(SETTINGS)}")
            continue
        field, check = SETTINGS[name]
        if name in CLIENT_ONLY and not at_start:
            continue
        if check.accepts(value):
            result = _with(result, field, value)
        else:
            default = getattr(Settings(), field)
            problems.append(f"aotlens.{name}: expected {check.expected}, got {value!r}; using {default!r}")
    return result, tuple(problems)


def _defaults(base: Settings, at_start: bool) -> Settings:
    if at_start:
        return Settings()
    return Settings(
        trusted=base.trusted,
        virtual_documents=base.virtual_documents,
        terminal=base.terminal,
        status=base.status,
    )


def _with(settings: Settings, field: str, value: object) -> Settings:
    """Return the settings with an accepted value, in the field's own type.

    JSON has no tuples, and a client may send `512.0`, or an empty text for a value that is not set.
    """
    if field == "args":
        assert isinstance(value, list | tuple)
        return replace(settings, args=tuple(value))
    if field in ("python", "gpu") and value == "":
        value = None
    if field == "memory_limit_mib" and isinstance(value, float):
        value = int(value)
    chosen = settings.chosen if value is None else settings.chosen | {field}
    return replace(settings, chosen=chosen, **{field: value})  # type: ignore[arg-type]  # checked by SETTINGS


def _flatten(data: Mapping[object, object], prefix: str = "") -> list[tuple[str, object]]:
    flat: list[tuple[str, object]] = []
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and name not in SETTINGS:
            flat += _flatten(value, f"{name}.")
        else:
            flat.append((name, value))
    return flat
