"""The one way a command fails: a plain sentence for the person, and an exit code. Printed by `main`."""


class CommandError(Exception):
    """`str(error)` is one plain sentence that says what is wrong and, if it isn't obvious, what to do."""
