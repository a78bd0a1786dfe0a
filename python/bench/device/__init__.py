"""The parts of python/bench/devices.py. They take PyTorch, the installed package and the standard library, and nothing else."""
