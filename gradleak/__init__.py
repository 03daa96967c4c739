"""GradLeak: what a server learns of your data from the gradient you send it.

This package is the public face, and what it exports is held to semantic versioning; everything
else is internal. Submissions import `benchmark.api`, which has these nouns and the toolbox's.
"""

from importlib.metadata import version
from typing import TYPE_CHECKING

from benchmark.lazy import lazily

if TYPE_CHECKING:
    from benchmark.api import (
        Anatomy,
        Attack,
        Defense,
        ImageAnatomy,
        MaliciousAttack,
        NotApplicable,
        Observation,
        Reconstruction,
        TextAnatomy,
        Update,
        Victim,
        load_results,
    )
    from benchmark.errors import BenchmarkError
    from gradleak.auditing import audit
    from gradleak.guarding import Guard, LeakError, guard
    from gradleak.report import Finding, Report
    from gradleak.runs import run

__version__ = version("gradleak")

__all__ = [
    "Anatomy",
    "Attack",
    "BenchmarkError",
    "Defense",
    "Finding",
    "Guard",
    "ImageAnatomy",
    "LeakError",
    "MaliciousAttack",
    "NotApplicable",
    "Observation",
    "Reconstruction",
    "Report",
    "TextAnatomy",
    "Update",
    "Victim",
    "__version__",
    "audit",
    "guard",
    "load_results",
    "run",
]

# torch is imported when a word is first asked for, so that the command line answers at once.
__getattr__ = lazily(
    __name__,
    {
        "benchmark.api": (
            *("Anatomy", "Attack", "Defense", "ImageAnatomy", "MaliciousAttack", "NotApplicable"),
            *("Observation", "Reconstruction", "TextAnatomy", "Update", "Victim", "load_results"),
        ),
        "benchmark.errors": ("BenchmarkError",),
        ".auditing": ("audit",),
        ".guarding": ("Guard", "LeakError", "guard"),
        ".report": ("Finding", "Report"),
        ".runs": ("run",),
    },
)


def __dir__() -> list[str]:
    return __all__
