"""A folder for what children are given to read, gone when this process is."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

_REMOVES = 'cat > /dev/null; rm -rf -- "$1"'  # once its input ends, as it does when we are killed


class Scratch:
    """A folder that is gone when this process is, killed or not."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gradleak-"))
        self._remover = subprocess.Popen(
            ["sh", "-c", _REMOVES, "sh", str(self.folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def for_child(self) -> Path:
        """Return a new folder in it that a child's user may read."""
        made = Path(tempfile.mkdtemp(dir=self.folder, prefix="child-"))
        made.chmod(0o755)  # its user is another; who else is here cannot come this far
        return made

    def remove(self) -> None:
        """Remove the folder and what it holds."""
        assert self._remover.stdin
        self._remover.stdin.close()
        self._remover.wait()
