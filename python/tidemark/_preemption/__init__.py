"""Signals that end a process, as one last save."""
