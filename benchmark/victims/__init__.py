from benchmark.victims.anatomy import ImageAnatomy, ImageBlock
from benchmark.victims.build import build, weights
from benchmark.victims.inputs import layer_inputs
from benchmark.victims.language import TextAnatomy, TextBlock, TextSettings, TextSpec, TextVictim
from benchmark.victims.operations import operations
from benchmark.victims.parameters import LinearLayer, ParameterSlice
from benchmark.victims.patches import images_from_patches, to_images, to_patches
from benchmark.victims.spec import (
    SIZES,
    Bottleneck,
    ImageSettings,
    ImageSpec,
    Initialisation,
    Jigsaw,
)
from benchmark.victims.training import Stage, accuracy
from benchmark.victims.victim import ImageVictim

__all__ = [
    "SIZES",
    "Bottleneck",
    "ImageAnatomy",
    "ImageBlock",
    "ImageSettings",
    "ImageSpec",
    "ImageVictim",
    "Initialisation",
    "Jigsaw",
    "LinearLayer",
    "ParameterSlice",
    "Stage",
    "TextAnatomy",
    "TextBlock",
    "TextSettings",
    "TextSpec",
    "TextVictim",
    "accuracy",
    "build",
    "images_from_patches",
    "layer_inputs",
    "operations",
    "to_images",
    "to_patches",
    "weights",
]
