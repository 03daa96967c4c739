"""What every defense promises of what it sends, asked on every small victim that it fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor

from benchmark.conformance.rows import Broken, NotAsked, Row, ask, line_of
from benchmark.conformance.surroundings import reseeded, seeded, watched
from benchmark.contract import Defense, Update
from benchmark.errors import NotApplicable, PluginError
from benchmark.federation import DefendedRound, Round
from benchmark.registry import Submission

_HOOKS = ("protect_update", "compute_update", "protect_batch", "harden", "keyed", "server_view")
_PLAIN = (str, int, float, bool, type(None))


class Asked:
    """A defense on rounds: each promise once, `rows` all of them.

    Args:
        submission: the defense.
        rounds: undefended ones.
        trials: those asked of each.
    """

    def __init__(
        self, submission: Submission, rounds: Sequence[Round], trials: Sequence[int] = (0, 1)
    ) -> None:
        self.submission, self._given, self.trials = submission, rounds, trials
        self.defense: Defense = submission.build()
        self.moved: set[str] = set()
        """Settings of torch and the process that any of the runs left otherwise."""
        self._first: dict[Round, tuple[dict[int, Update], dict[str, bytes]]] = {}
        self._clean = [(plain, _tensors(plain, trials)) for plain in rounds]
        self._place = line_of(type(self.defense), submission.folder, *_HOOKS)

    def rows(self) -> Iterator[Row]:
        """Ask every promise."""
        promises = {
            "fits a victim": self.fits,
            "sends names, shapes and types of the model": self.sends,
            "same seed, same bits": self.repeats,
            "does nothing at strength zero": self.idles,
            "describes itself in plain words": self.describes,
            "changes no victim and no update in place": self.leaves_round,
            "leaves torch and the process as they were": self.leaves_settings,
        }
        for promise, kept in promises.items():
            yield ask(promise, kept, self.submission.folder, self._place)

    @cached_property
    def rounds(self) -> list[Round]:
        """Those whose victim it fits."""
        found = []
        for plain in self._given:
            try:
                self._first[plain] = self._sent(plain, 1)
            except NotApplicable as reason:
                self._declined = f"{plain.name}: {reason}"
            else:
                found.append(plain)
        return found

    def fits(self) -> str:
        """Name the victims that it fits; one that fits none can be asked nothing."""
        if not self.rounds:
            raise Broken(f"fits none of the small victims: {self._declined}")
        return ", ".join(plain.name for plain in self.rounds)

    def sends(self) -> None:
        """Hold what is sent against the model's parameters; some may be withheld, not all."""
        for plain in self._asked():  # a fault is an error of DefendedRound's own
            if any(not sent for sent in self._first[plain][0].values()):
                raise Broken("sends nothing at all")

    def repeats(self) -> None:
        """Send the last trial alone, global generators seeded otherwise: not a bit may move."""
        for plain in self._asked():
            first, before = self._first[plain]
            again, after = self._sent(plain, 2, trials=self.trials[-1:])
            if seeds := reseeded(before, after):
                raise Broken(f"seeds the global generator of {', '.join(seeds)}")
            for trial, update in again.items():
                if name := _other(first[trial], update):
                    raise Broken(f"the same seed sends another {name}; wanted draws alone")

    def idles(self) -> str:
        """Hold what is sent at strength zero against the undefended update."""
        strength = self.submission.manifest.strength
        if strength is None:
            raise NotAsked("submission.yaml names no strength")
        idle = self._at_zero(strength)
        for plain in self._asked():
            sent, _ = self._sent(plain, 1, idle)
            for trial, update in sent.items():
                if name := _other(update, plain.update(trial)):
                    raise Broken(f"at {strength}=0 it sends another {name}")
        return f"{strength}=0"

    def describes(self) -> None:
        """Look for anything in the public description but words and numbers."""
        for name, value in self.defense.describe().items():
            if not isinstance(value, _PLAIN):
                raise Broken(f"describes {name} by a {type(value).__name__}; wanted plain words")

    def leaves_round(self) -> None:
        """Compare victims and undefended updates with copies made before the first run."""
        for plain, before in self._clean:
            now = _tensors(plain, self.trials)
            if changed := [
                name for name, each in before.items() if not torch.equal(each, now[name])
            ]:
                raise Broken(f"changed {changed[0]} in place")

    def leaves_settings(self) -> None:
        """Name what any run left otherwise than it found it."""
        if self.moved:
            raise Broken(f"changed {', '.join(sorted(self.moved))}")

    def _asked(self) -> list[Round]:
        """Return the rounds it fits, where what it sends can be asked anything."""
        try:
            found = self.rounds
        except PluginError:
            raise NotAsked("it sends no update") from None
        if not found:
            raise NotAsked("it fits no victim")
        return found

    def _sent(
        self,
        plain: Round,
        seed: int,
        defense: Defense | None = None,
        trials: Sequence[int] | None = None,
    ) -> tuple[dict[int, Update], dict[str, bytes]]:
        """Return what is sent in each trial, and the states the global generators ended in."""
        defended = DefendedRound(plain, defense or self.defense, self.submission.label)
        with watched(self.moved), seeded(seed) as states:
            sent = {trial: defended.update(trial) for trial in trials or self.trials}
            _ = defended.server_model
        return sent, states

    def _at_zero(self, strength: str) -> Defense:
        kept = tuple(pair for pair in self.submission.arguments if pair[0] != strength)
        for zero in (0.0, 0):
            arguments = (*kept, (strength, zero))
            try:
                made: Defense = Submission(
                    self.submission.manifest, self.submission.folder, arguments
                ).build()
            except PluginError as error:
                refused = error
            else:
                return made
        raise Broken(f"strength: {refused}")


def _tensors(plain: Round, trials: Sequence[int]) -> dict[str, Tensor]:
    """Return copies of what a defense must leave alone, by name."""
    weights = {
        f"the victim's {n}": t.detach().clone() for n, t in plain.victim.state_dict().items()
    }
    updates = {
        f"the undefended update's {name}": each.clone()
        for trial in trials
        for name, each in plain.update(trial).items()
    }
    return weights | updates


def _other(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor that differs in a bit, or stands in one alone."""
    if apart := sorted(one.keys() ^ other.keys()):
        return apart[0]
    return next((name for name, each in one.items() if not torch.equal(each, other[name])), None)
