"""Read the structured log that torch writes with `TORCH_TRACE=DIR`, and build our report from it.

Invariant: nothing of a log is executed or evaluated, every size is bounded, and no module imports torch
but those that ask our partitioner (`reasons`, loaded when they are needed).

| module | from | makes |
|---|---|---|
| `log_file` | a path | bytes by offset, of a plain or compressed log |
| `scan` | blocks of bytes | one row of numbers per record: offset, lengths, kind, context |
| `reader` | rows | `Trace`, `Process`, `Compilation`, `Record`; headers and texts are read on demand |
"""
