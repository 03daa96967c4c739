"""All that a submission may import, beside `benchmark.toolbox`; and the results, as a table."""

from typing import TYPE_CHECKING

from benchmark.contract import (
    Anatomy,
    Attack,
    Batch,
    Budget,
    DataStatistics,
    Defense,
    Grant,
    ImageBatch,
    Knowledge,
    LocalTraining,
    MaliciousAttack,
    Observation,
    Reconstruction,
    Stack,
    TextBatch,
    ThreatModel,
    Update,
    Victim,
)
from benchmark.errors import (
    DataUnavailable,
    NotApplicable,
    PluginError,
    RefusedError,
    WithheldError,
)
from benchmark.lazy import lazily
from benchmark.victims import (
    Bottleneck,
    ImageAnatomy,
    ImageVictim,
    Jigsaw,
    LinearLayer,
    ParameterSlice,
    TextAnatomy,
    TextVictim,
    images_from_patches,
    layer_inputs,
    to_images,
    to_patches,
    weights,
)

if TYPE_CHECKING:
    from benchmark.records import load_results

__all__ = [
    "Anatomy",
    "Attack",
    "Batch",
    "Bottleneck",
    "Budget",
    "DataStatistics",
    "DataUnavailable",
    "Defense",
    "Grant",
    "ImageAnatomy",
    "ImageBatch",
    "ImageVictim",
    "Jigsaw",
    "Knowledge",
    "LinearLayer",
    "LocalTraining",
    "MaliciousAttack",
    "NotApplicable",
    "Observation",
    "ParameterSlice",
    "PluginError",
    "Reconstruction",
    "RefusedError",
    "Stack",
    "TextAnatomy",
    "TextBatch",
    "TextVictim",
    "ThreatModel",
    "Update",
    "Victim",
    "WithheldError",
    "images_from_patches",
    "layer_inputs",
    "load_results",
    "to_images",
    "to_patches",
    "weights",
]

__getattr__ = lazily(__name__, {"benchmark.records": ("load_results",)})  # pandas: see records
