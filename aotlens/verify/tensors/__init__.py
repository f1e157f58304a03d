"""The tensors that one call can reach: their names, copies, values and shared storages."""
