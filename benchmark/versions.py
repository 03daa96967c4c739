"""Versions that people raise when answers change; every record carries those it was made by.

Raise one in the same commit as the change: the records it decides are then due. `gradleak verify`
tells whether a change of the source has changed an answer.
"""

HARNESS = 1
"""Of all that stands between a protocol and a score: contract, data, victims, federation, metrics,
tracks, seeds and cell. Every record hangs on it."""

TOOLBOX = {
    "closedform": 2,
    "counts": 1,
    "gradients": 1,
    "inverter": 1,
    "labels": 1,
    "matching": 1,
    "noise": 2,
    "priors": 1,
    "text": 1,
}
"""Of each package of the toolbox; the submissions that import one inherit its version."""


def is_raised(now: str, was: str) -> bool:
    """Tell whether a version is another than it was: its own, or that of a package still inherited.

    A package that is imported no more raises nothing: the source has moved, as fingerprints say.
    """
    own, *inherited = now.split("+")
    own_then, *inherited_then = was.split("+")
    return own != own_then or not set(inherited) <= set(inherited_then)
