"""Emulation of a GPU for a user script on a machine without one; and scripts whose tensors hold no memory.

Three rules say where a tensor is:
- a real tensor is where its storage is: a storage that was asked for on the GPU is a CPU storage with a mark;
- an operator's new results are on the GPU when one of its tensors is, or when it is asked for (`device=`);
- `to`, `cuda` and `cpu` copy between the two, as they do between real devices.
A fake tensor knows its device itself, and follows the same rules.

Invariant: what is replaced stands in tables, each name with its reason, and is put back at the end of the
context.  Where a GPU is there, nothing is replaced.
"""
