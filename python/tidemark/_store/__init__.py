"""Reading a store, also beside its trainer."""
