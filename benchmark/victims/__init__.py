from benchmark.victims.anatomy import Anatomy, Block, anatomy, head, weights
from benchmark.victims.language import (
    LanguageAnatomy,
    LanguageBlock,
    LanguageSettings,
    LanguageSpec,
    LanguageVictim,
    build_language,
    language_anatomy,
)
from benchmark.victims.parts import Linear, Part
from benchmark.victims.patches import images_from_patches, to_images, to_patches
from benchmark.victims.spec import Initialisation, VictimSettings, VictimSpec
from benchmark.victims.training import Stage
from benchmark.victims.victim import Victim, build

__all__ = [
    "Anatomy",
    "Block",
    "Initialisation",
    "LanguageAnatomy",
    "LanguageBlock",
    "LanguageSettings",
    "LanguageSpec",
    "LanguageVictim",
    "Linear",
    "Part",
    "Stage",
    "Victim",
    "VictimSettings",
    "VictimSpec",
    "anatomy",
    "build",
    "build_language",
    "head",
    "images_from_patches",
    "language_anatomy",
    "to_images",
    "to_patches",
    "weights",
]
