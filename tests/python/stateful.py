"""An object of a state, for tests."""


class Stateful:
    """Has the state that it was given or that a restore has set."""

    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state
