"""Read the structured log that torch writes with `TORCH_TRACE=DIR`, and build our report from it.

Invariant: nothing of a log is executed or evaluated, every size is bounded, and only the modules that ask our
partitioner (`partition_reasons`, loaded on demand) import torch.

| module | from | makes |
|---|---|---|
| `logs.log_file` | a path | bytes by offset, of a plain or compressed log |
| `logs.scan` | blocks of bytes | one row of numbers per record: offset, lengths, kind, context |
| `logs.reader` | rows | `Trace`, `Process`, `Compilation`, `Record`; headers and texts are read on demand |
"""
