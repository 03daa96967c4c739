"""GradLeak: what a server learns of your data from the gradient you send it.

This package is the public face, and what it exports is held to semantic versioning; everything
else is internal. Submissions import `benchmark.api`, which has these nouns and the toolbox's.
"""

from importlib.metadata import version

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
]
