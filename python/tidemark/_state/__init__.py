"""What a state of the trainer is, and the entries that it becomes."""
