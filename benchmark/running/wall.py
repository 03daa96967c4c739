"""The wall: the command line of bubblewrap round a child that runs other people's code.

Inside there are Python, `benchmark/`, the one submission with those of ours that it imports, and
the child's own folder of observations, all to be read only. There is no network, no other process,
no home, and nothing to write to but a small `/tmp` in memory. See docs/security.md.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from benchmark.errors import PluginError
from benchmark.identity import OWN, ROOT
from benchmark.registry import Submission

_SCRATCH_BYTES = 2**26  # of /tmp and of /dev/shm, each
_USERS = range(61184, 65520)  # as systemd's: of no one who logs in
_SYSTEM = (
    *("/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/local/lib"),
    *("/bin", "/lib", "/lib32", "/lib64"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
    "/sys/devices/system",  # which processor it is decides which kernels torch takes
)
_DATA = (  # the data sets that installed packages carry
    *(f"sklearn/datasets/{name}" for name in ("data", "images", "descr", "tests")),
    *("skimage/data", "pydoc_data"),
)
_LIBRARIES = ("lib/python3*", "local/lib/python3*", "lib/python3/dist-packages")
_PRIVATE = ("results", "protocols", "submissions", "leaderboard", "tests", ".git")
_GPUS = ("nvidia*", "dri")
_NAMESPACES = ("ipc", "pid", "net", "uts", "cgroup")
_KEPT_VARIABLES = ("LANG", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")


@cache
def trouble() -> str | None:
    """Return in one line why there is no wall here, or None where one can be built."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed; get it by: apt install bubblewrap"
    shown = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
    done = subprocess.run(_built(shown, ["true"], 0), capture_output=True, text=True, check=False)
    said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
    return None if done.returncode == 0 else f"bubblewrap cannot build a wall here: {said}"


def demand(submission: Submission) -> None:
    """Refuse what comes from outside where there is no wall.

    Raises:
        PluginError: with what would help.
    """
    if submission.outside and (said := trouble()):
        name = f"{submission.manifest.kind} {submission.label}"
        raise PluginError(f"{name} comes from outside: {said}; or trust it by --trust-plugins")


def demand_trust(submission: Submission) -> None:
    """Refuse what comes from outside and runs in the harness's own process.

    Raises:
        PluginError: always, for such a submission.
    """
    if submission.outside:
        name = f"{submission.manifest.kind} {submission.label}"
        said = "comes from outside and would run in this process, where no wall is"
        raise PluginError(f"{name} {said}: read it, then trust it by --trust-plugins")


def walled(
    command: Sequence[str],
    submission: Submission,
    others: Sequence[Path],
    *,
    user: int,
    gpu: bool,
    data: bool = False,
) -> list[str]:
    """Return a command line that runs a command behind the wall, in the repository's folder.

    Args:
        command: of this very Python.
        submission: the one that it may read.
        others: files and folders that it may read too.
        user: a number; of two children that run at once it should differ.
        gpu: whether it needs the devices of one.
        data: whether the data sets that packages carry are left in them.

    Raises:
        PluginError: the submission's folder holds the harness, or a home, too.
    """
    for place in (ROOT, Path.home()):
        if place.is_relative_to(submission.folder):
            raise PluginError(f"{submission.folder} holds {place} too: wanted a folder of its own")
    shown = [*_python(), *(_devices() if gpu else ()), ROOT / "benchmark"]
    options = [
        *("--clearenv", *_environment()),
        *("--dev", "/dev", *_scratch("/dev/shm"), "--proc", "/proc", *_scratch("/tmp")),
        *_readable(shown),
        *_emptied(shown, () if data else _DATA),
        *_readable([*_code(submission), *others]),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(ROOT)),
    ]
    return _built(options, command, user)


def _built(options: Sequence[str], command: Sequence[str], user: int) -> list[str]:
    """Return the whole command line: one bubblewrap, or of root two.

    No limit of processes binds who is root outside, whatever the name inside; so root's builds the
    wall, and a second one gives another user a namespace of users in which it is no one else.
    """
    alone = ["--cap-drop", "ALL", "--unshare-user", "--disable-userns"]
    wall = ["bwrap", *(f"--unshare-{name}" for name in _NAMESPACES), "--new-session"]
    wall += ["--die-with-parent"]
    if os.geteuid() != 0:
        return [*wall, *alone, *options, "--", *command]
    number = str(_USERS[user % len(_USERS)])
    another = ["setpriv", f"--reuid={number}", f"--regid={number}", "--clear-groups"]
    becomes = ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    second = ["bwrap", *alone, "--dev-bind", "/", "/", "--", *command]
    return [*wall, *becomes, *options, "--", *another, *second]


def _environment() -> Iterator[str]:
    given = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    fixed = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "USER": "nobody", "HF_HUB_OFFLINE": "1"}
    for name, value in {**given, **fixed, "PYTHONDONTWRITEBYTECODE": "1"}.items():
        yield from ("--setenv", name, value)


def _scratch(place: str) -> tuple[str, ...]:
    return ("--perms", "1777", "--size", str(_SCRATCH_BYTES), "--tmpfs", place)


def _python() -> list[Path]:
    """Return what the interpreter needs: the system's libraries, its own prefix and the venv's."""
    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    found = [Path(name) for name in (*_SYSTEM, *sorted(prefixes - {"/usr"}))]
    link = Path(sys.executable)
    while link.is_symlink():  # a venv's interpreter may be reached by way of others
        link = link.parent / os.readlink(link)
        found.append(Path(os.path.normpath(link)))
    return found


def _devices() -> list[Path]:
    return [path for name in _GPUS for path in sorted(Path("/dev").glob(name))]


def _code(submission: Submission) -> list[Path]:
    """Return a submission's folder and those of ours whose code it imports."""
    ours = {file.relative_to(OWN).parts[:2] for file in submission.files if OWN in file.parents}
    packages = [OWN / "__init__.py", OWN / "attacks/__init__.py", OWN / "defenses/__init__.py"]
    return [submission.folder, *packages, *(OWN.joinpath(*parts) for parts in sorted(ours))]


def _readable(paths: Iterable[Path]) -> Iterator[str]:
    """Yield what shows paths; a folder on the way is there too, and nothing else in it."""
    shown: list[Path] = []
    for path in paths:
        if not path.exists() or any(path.is_relative_to(other) for other in shown):
            continue
        for parent in [*path.parents][-2::-1]:
            if not any(parent.is_relative_to(other) for other in shown):
                yield from ("--perms", "0755", "--dir", str(parent))
        if path.is_symlink() and path.parent == Path("/"):  # /lib, of a merged /usr
            yield from ("--symlink", os.readlink(path), str(path))
            continue
        shown.append(path)
        bind = "--dev-bind" if Path("/dev") in path.parents else "--ro-bind"
        yield from (bind, str(path), str(path))


def _emptied(shown: Sequence[Path], data: Sequence[str]) -> Iterator[str]:
    """Yield what puts empty folders over data, and over ours, that lie among what is shown."""
    libraries = {Path(name) for name in sys.path}
    libraries |= {place for name in _LIBRARIES for place in Path("/usr").glob(name)}
    for place in sorted(library / name for library in libraries for name in data):
        if place.is_dir() and any(place.is_relative_to(other) for other in shown):
            yield from ("--tmpfs", str(place), "--remount-ro", str(place))
    for place in (ROOT / name for name in _PRIVATE):  # where packages hold the harness too
        if place.is_dir() and any(place.is_relative_to(other) for other in shown):
            yield from ("--perms", "0755", "--size", str(_SCRATCH_BYTES), "--tmpfs", str(place))
