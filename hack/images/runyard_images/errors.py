"""The one exception of the tool: whatever is raised as it reaches the user as one plain sentence."""


class ImagesError(Exception):
    """Something the user can read and act on; `cli` prints it on stderr and exits with 1."""
