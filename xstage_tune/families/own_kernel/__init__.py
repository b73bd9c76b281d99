"""The space of a kernel of the user's own: any axes, measured by a process of theirs."""
