"""The Checkpointer, and what its methods take and return."""
