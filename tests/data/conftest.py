import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def user_mirror():
    """Return the user's own mirror, where it has a folder; else the test is skipped."""
    named = os.environ.get("GRADLEAK_DATA")  # read before a test's own patches

    def have(folder: str) -> Path:
        if not named or not (Path(named) / folder).is_dir():
            pytest.skip(f"GRADLEAK_DATA has no {folder}")
        return Path(named)

    return have
