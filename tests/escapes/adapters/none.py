"""No sandbox: the control. What does not get out here proves nothing elsewhere."""

OUTSIDE = {}


def version():
    return "bash alone"


def command(workspace, state, read_only, line):
    return ["/bin/bash", "-c", line], {}
