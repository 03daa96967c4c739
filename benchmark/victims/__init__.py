from benchmark.victims.anatomy import Anatomy, Block, Part, anatomy, head, weights
from benchmark.victims.patches import images_from_patches, to_images, to_patches
from benchmark.victims.spec import Initialisation, VictimSettings, VictimSpec
from benchmark.victims.victim import Victim, build

__all__ = [
    "Anatomy",
    "Block",
    "Initialisation",
    "Part",
    "Victim",
    "VictimSettings",
    "VictimSpec",
    "anatomy",
    "build",
    "head",
    "images_from_patches",
    "to_images",
    "to_patches",
    "weights",
]
