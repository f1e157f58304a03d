"""Emulate a GPU for user scripts on a machine without one, and run scripts on fake tensors.

Three rules decide a tensor's device:
- a real tensor's device is that of its storage: a CPU storage with a mark stands for one on the GPU;
- an operator's new outputs are on the GPU if one of its tensors is, or if the call asks for it (`device=`);
- `to`, `cuda` and `cpu` copy between the two, as between real devices.
A fake tensor stores its device itself, and follows the same rules.

Invariant: replaced names are in tables, each with its reason, and are restored at the end of the context.
Where a GPU is present, nothing is replaced.
"""
