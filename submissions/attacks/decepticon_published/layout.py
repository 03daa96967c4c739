"""What a model's size fixes of the imprint, the same for both halves."""

from __future__ import annotations

from dataclasses import dataclass

from benchmark.api import NotApplicable, TextAnatomy

_SMALL = 96  # width of the paper's small model, the Transformer-3


@dataclass(frozen=True)
class Layout:
    """The paper's two settings, of its appendix A."""

    reserved: int
    """First entries, which name the sequence: d' in the paper."""
    flow: float
    """Of the last entry, through which alone gradient reaches the MLPs: the paper's epsilon."""

    @staticmethod
    def of(parts: TextAnatomy) -> Layout:
        """Return the setting for a model.

        Raises:
            NotApplicable: the model is too narrow, or has no block to spare.
        """
        layout = Layout(6, 1e-6) if parts.width <= _SMALL else Layout(32, 1e-8)
        room = min(parts.width // parts.heads, (parts.width - 1) // 3)
        if layout.reserved > room:
            raise NotApplicable(
                f"a width of {parts.width} in {parts.heads} heads leaves no room for an imprint"
            )
        if parts.masked and len(parts.blocks) < 2:
            raise NotApplicable("one block sends no gradient to the tokens that are not masked")
        return layout
