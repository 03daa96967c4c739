"""Which entries of an imprinted model's width serve for what, the same for both halves."""

from __future__ import annotations

from dataclasses import dataclass

from benchmark.api import NotApplicable, TextAnatomy


@dataclass(frozen=True)
class Layout:
    """The use of the entries."""

    width: int
    share: int
    """Entries in which each anchor marks its sequence."""
    anchors: tuple[int, ...]
    """Positions whose tokens mark their sequence."""
    free: int
    """First entries, the marks among them, without anything of the token itself."""
    carriers: int
    """Last entries, through which alone gradient flows."""
    unseen: int = 0
    """Entries before them that hold nothing, so that parameters may differ there."""
    dead: int = 0
    """Last units of each first layer, which never fire."""

    @staticmethod
    def of(parts: TextAnatomy, *, hidden: bool = False) -> Layout:
        """Return the use of a model's entries, with some unseen and dead ones if it is hidden.

        Raises:
            NotApplicable: the model is too narrow, or has no block to spare.
        """
        wide = parts.width > 96
        # every token of a masked model sees all positions, and distant ones are less alike
        anchors: tuple[int, ...] = (0, 5, 11, 19) if parts.masked else (0, 1, 2, 3)
        anchors = anchors[: min(4 if wide else 3, parts.heads)]
        share = min((32 if wide else 6) // len(anchors), parts.width // parts.heads)
        marks, carriers = share * len(anchors), 4 if wide else 1
        free = marks if parts.position_trained else max(marks, 12)  # fewer waves look alike
        if parts.width < 2 * (free + carriers):
            raise NotApplicable(f"a width of {parts.width} leaves no room for an imprint")
        if parts.masked and len(parts.blocks) < 2:
            raise NotApplicable("one block sends no gradient to the tokens that are not masked")
        spare = (parts.width // 6, 2 * parts.width // 3) if hidden else (0, 0)
        return Layout(parts.width, share, anchors, free, carriers, *spare)

    @property
    def marks(self) -> slice:
        """The entries that hold the marks."""
        return slice(0, self.share * len(self.anchors))

    @property
    def content(self) -> slice:
        """The entries that hold token and position and nothing else."""
        return slice(self.marks.stop, self.width - self.carriers)

    @property
    def blind(self) -> slice:
        """The content entries that are unseen."""
        return slice(self.tail.start - self.unseen, self.tail.start)

    @property
    def tail(self) -> slice:
        """The carriers."""
        return slice(self.width - self.carriers, self.width)


def exit_norm(parts: TextAnatomy) -> str:
    """Return the prefix of the norm whose output the decoder reads."""
    return parts.head_norm or parts.final_norm or parts.blocks[-1].mlp_norm
