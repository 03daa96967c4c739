"""What the peers' runner of gradient matching asks of this project: Architecture B, and an update.

It imports a module of this name; the folder that `GRADLEAK_PEERS` names may hold one too, of an
older interface, and this one stands before it.
"""

import torch
from safetensors.torch import load_file

from benchmark.seeds import generator
from benchmark.victims import ImageSpec, Initialisation, build

SIZE, CLASSES, MEAN, STD = 32, 10, 0.5, 0.25


def architecture_b():
    spec = ImageSpec(
        architecture="april_b",
        patch=8,
        size=SIZE,
        classes=CLASSES,
        channels=3,
        mean=(MEAN,) * 3,
        std=(STD,) * 3,
        initialisation=Initialisation(position_std=1.0, class_token_std=1.0),
    )
    return build(spec, generator(0, "victim"))


def load(path, victim):
    """Put a file's weights into the victim; return its gradients by name, image and label."""
    parts = {"weights": {}, "gradients": {}, "truth": {}}
    for key, value in load_file(path).items():
        part, _, name = key.partition(".")
        parts[part][name] = value
    victim.network.load_state_dict(parts["weights"])
    return parts["gradients"], parts["truth"]["image"], parts["truth"]["label"]


def picture(_kind, draws):
    """Return an image and its label, at random."""
    image = torch.rand((1, 3, SIZE, SIZE), generator=draws)
    return image, torch.randint(CLASSES, (1,), generator=draws)
