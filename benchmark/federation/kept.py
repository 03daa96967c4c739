"""Updates that attacks share: as many as fit in memory, and those that are dear in files.

Every attack asks for the trials in one order. So the one before the newest goes: were it the
oldest, as many as do not fit at once would all be made again for each attack.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from tempfile import NamedTemporaryFile

import torch

from benchmark.contract import Update

Place = tuple[int, int]
"""A trial, and the round of it."""
_DEAR = 2**27
"""Bytes a second: what is made more slowly is sooner written and read than made again."""


class Kept:
    """Updates by trial and round.

    Args:
        most: bytes that they may take in memory, the newest apart; at 0 nothing is put in files.
    """

    def __init__(self, most: int) -> None:
        self.most = most  # a number, not its round: a ring of references outlives its last user
        self._held: dict[Place, Update] = {}
        self._dear: set[Place] = set()
        self._aside: dict[Place, Update] = {}

    def get(self, place: Place) -> Update | None:
        """Return an update that was made, and is still here."""
        return self._held.get(place) or self._aside.get(place)

    def made(self, place: Place, make: Callable[[], Update]) -> Update:
        """Return an update, made now where it is not here."""
        if (update := self.get(place)) is None:
            began = time.monotonic()
            update = make()
            if update.nbytes < _DEAR * (time.monotonic() - began):
                self._dear.add(place)
            self._held[place] = update
            self._make_room()
        return update

    def _make_room(self) -> None:
        while len(self._held) > 1 and sum(one.nbytes for one in self._held.values()) > self.most:
            place = list(self._held)[-2]
            update = self._held.pop(place)
            if self.most and place in self._dear and (aside := in_file(update)) is not None:
                self._aside[place] = aside


def in_file(update: Update) -> Update | None:
    """Return an update whose memory is a file's, which nobody sees and which goes with it.

    The system writes and reads it as memory runs short. None where the disk has no room for it and
    as much again, and where the update is not in main memory.
    """
    sizes = [tensor.numel() for tensor in update.values()]
    if any(tensor.device.type != "cpu" for tensor in update.values()):
        return None
    with NamedTemporaryFile(prefix="gradleak-") as file:
        disk = os.statvfs(file.name)
        if disk.f_bavail * disk.f_frsize < 2 * update.nbytes:
            return None
        os.posix_fallocate(file.fileno(), 0, update.nbytes)
        flat = torch.from_file(file.name, shared=True, size=sum(sizes))
    parts = zip(update.items(), torch.split(flat, sizes), strict=True)
    return Update({name: part.view_as(tensor).copy_(tensor) for (name, tensor), part in parts})
