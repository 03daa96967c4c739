"""Whether protocols can run: what needs no weights is known before the first trial."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

from benchmark.data.own import OwnSet
from benchmark.errors import DataUnavailable, ProtocolError, first_line
from benchmark.protocol import Protocol, TextProtocol, VisionProtocol
from benchmark.running.cost import image_spec, text_spec
from benchmark.running.limits import machine_bytes
from benchmark.victims import ImageSpec, TextSpec
from benchmark.victims.architectures import make_network


def check(protocols: Iterable[Protocol], mirror: Path | None = None) -> None:
    """Refuse a victim that cannot be built, and more trials than there are images or users.

    Args:
        protocols: that are to run.
        mirror: says of models of the hub what they are; of one that is not here its records tell.

    Raises:
        ProtocolError: the first of them, with its protocol.
    """
    for protocol in protocols:
        try:
            with suppress(DataUnavailable):
                _build(_spec(protocol), mirror)
        except ProtocolError as error:
            raise ProtocolError(f"{protocol.name}: {error}") from error
        _count(protocol)


def _spec(protocol: Protocol) -> ImageSpec | TextSpec:
    if isinstance(protocol, TextProtocol):
        return text_spec(protocol.victim, protocol.data.length)
    assert isinstance(protocol, VisionProtocol)
    classes = len(protocol.data.entry.class_names)
    return image_spec(protocol.victim, protocol.data.size, classes)


@cache
def _build(spec: ImageSpec | TextSpec, mirror: Path | None) -> None:
    """Build a victim of shapes without values; no file of weights is read."""
    spec = spec.model_copy(update={"weights": "random"})
    try:
        with torch.device("meta"):
            if isinstance(spec, TextSpec):
                network = spec.kind.network(spec, None)
            else:
                network = make_network(spec, mirror)
    except RuntimeError as error:  # sizes whose product is no number of bytes
        raise ProtocolError(f"victim: {first_line(error)}") from error
    takes, there = sum(each.nbytes for each in network.parameters()), machine_bytes()
    if takes > there:
        gib = f"{takes / 2**30:.0f} GiB of weights; this machine has {there / 2**30:.0f}"
        raise ProtocolError(f"victim: {gib}")


def _count(protocol: Protocol) -> None:
    """Refuse more than a data set holds, where it is known; who has too little text is not yet."""
    found, federation = protocol.data.entry, protocol.federation
    size = found.size.get("test")
    if isinstance(found, OwnSet) and protocol.data.hub is None:
        read = found.read("test")
        size = len(read[0]) if found.kind == "text" else len(read.labels)
    if size is None or found.crops:
        return  # the copy's, or crops of pictures
    each = federation.users if found.kind == "text" else federation.examples
    if protocol.trials * each > size:
        items = "users" if found.kind == "text" else "images"
        raise ProtocolError(
            f"{protocol.name}: {protocol.trials} trials of {each} {items} wanted, {found.name} "
            f"has {size} in its test split"
        )
