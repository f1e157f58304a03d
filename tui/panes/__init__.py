"""The tabs: each shows one side of a target and says which source it stands for."""
