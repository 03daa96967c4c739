"""Files of the command line: models, updates, images and text; nothing is fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from benchmark.contract import ImageBatch, TextBatch
from benchmark.errors import BenchmarkError, DataUnavailable, first_line
from benchmark.federation import fedsgd
from benchmark.victims import ImageVictim, TextVictim
from gradleak.wrapping import wrap


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a .safetensors file, or of a state dict in a .pt or .pth.

    Raises:
        BenchmarkError: it cannot be read, or holds something else.
    """
    if not path.is_file():
        raise BenchmarkError(f"{path}: no such file")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        held: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise BenchmarkError(f"{path}: cannot be read: {first_line(error)}") from error
    if not isinstance(held, Mapping) or not all(isinstance(t, Tensor) for t in held.values()):
        raise BenchmarkError(f"{path}: wanted tensors by name")
    return dict(held)


def load_model(
    named: str, checkpoint: Path | None, update: Mapping[str, Tensor] | None
) -> tuple[nn.Module, Any]:
    """Return a model and its tokenizer, None of images.

    Without a checkpoint weights are random, from seed 0, and no server's: attacks that read weights
    then mean something only where the update is computed here too.

    Args:
        named: `timm:NAME`, or `hf:FOLDER` with a config.json of `transformers`.
        checkpoint: its weights.
        update: tells the number of classes, by the gradient of the head.

    Raises:
        BenchmarkError: no such model, or weights that are not its own.
    """
    kind, _, name = named.partition(":")
    torch.manual_seed(0)
    if kind == "timm" and name:
        network, tokenizer = _timm(name, update), None
    elif kind == "hf" and name:
        network, tokenizer = _hugging_face(Path(name))
    else:
        raise BenchmarkError(f"--model {named!r}: wanted timm:NAME or hf:FOLDER")
    if checkpoint is not None:
        held, own = read_tensors(checkpoint), network.state_dict()
        for key, tensor in own.items():
            if key not in held or held[key].shape != tensor.shape:
                came = tuple(held[key].shape) if key in held else "nothing"
                raise BenchmarkError(f"{checkpoint}: {key} is {came}; wanted {tuple(tensor.shape)}")
        network.load_state_dict({key: held[key] for key in own})
    return network.eval(), tokenizer


def read_image(path: Path, network: nn.Module, _: Any = None) -> Tensor:  # noqa: ANN401
    """Return an image cut to a square and scaled to what a network reads, (1, channel, side, side).

    Raises:
        BenchmarkError: it is no image.
    """
    spec = ImageVictim.of(wrap(network)).spec
    try:
        with Image.open(path) as file:
            image = file.convert("L" if spec.channels == 1 else "RGB")
    except OSError as error:
        raise BenchmarkError(f"{path}: cannot be read as an image") from error
    side = min(image.size)
    left, top = ((length - side) // 2 for length in image.size)
    image = image.resize((spec.size,) * 2, box=(left, top, left + side, top + side))
    pixels = torch.from_numpy(np.asarray(image, dtype=np.float32) / 255)
    return pixels.view(spec.size, spec.size, spec.channels).permute(2, 0, 1)[None]


def read_text(path: Path, network: nn.Module, tokenizer: Any) -> Tensor:  # noqa: ANN401
    """Return the beginning of a text as tokens, (1, length) int64.

    Raises:
        BenchmarkError: it cannot be read, or holds fewer than two tokens.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BenchmarkError(f"{path}: cannot be read as text") from error
    longest = TextVictim.of(wrap(network)).spec.length
    tokens = tokenizer.encode(text, add_special_tokens=False)[:longest]
    if len(tokens) < 2:
        raise BenchmarkError(f"{path}: {len(tokens)} tokens; wanted two at least")
    return torch.tensor([tokens])


def gradient_of(
    network: nn.Module, truth: Tensor, labels: Sequence[int] | None
) -> dict[str, Tensor]:
    """Return the gradient of a batch's mean loss by name; labels not given are the model's own.

    Raises:
        BenchmarkError: labels that do not fit.
    """
    victim = wrap(network)
    if isinstance(victim, TextVictim):
        return dict(fedsgd(victim, TextBatch(truth)))
    spec = ImageVictim.of(victim).spec
    if labels is None:
        with torch.no_grad():
            chosen = victim(truth).argmax(dim=1)
    else:
        chosen = torch.tensor(labels)
    if len(chosen) != len(truth) or int(chosen.max()) >= spec.classes or int(chosen.min()) < 0:
        raise BenchmarkError(f"labels {labels}: wanted {len(truth)} from 0 to {spec.classes - 1}")
    return dict(fedsgd(victim, ImageBatch(truth, chosen)))


def _timm(name: str, update: Mapping[str, Tensor] | None) -> nn.Module:
    import timm

    if not timm.is_model(name):
        raise BenchmarkError(f"timm has no model {name!r}; wanted a name of timm.list_models()")
    network: Any = timm.create_model(name)
    head = network.pretrained_cfg.get("classifier")
    gradient = (update or {}).get(f"{head}.weight")
    if gradient is not None and gradient.ndim == 2 and len(gradient) != network.num_classes:
        torch.manual_seed(0)
        network = timm.create_model(name, num_classes=len(gradient))
    return network


def _hugging_face(folder: Path) -> tuple[nn.Module, Any]:
    import transformers

    if not (folder / "config.json").is_file():
        raise BenchmarkError(f"{folder}: no config.json in it; nothing is fetched from a hub")
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        kind: Any = getattr(transformers, (config.architectures or [""])[0], None)
        if kind is None:
            raise BenchmarkError(f"{folder}/config.json names no architecture that is known")
        weights = list(folder.glob("*.safetensors"))
        network = kind.from_pretrained(folder, local_files_only=True) if weights else kind(config)
        if hasattr(config, "image_size"):
            return network, None
        return network, transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise DataUnavailable(str(folder), [str(folder)], first_line(error)) from error
