import importlib
from typing import TYPE_CHECKING

from benchmark.protocol.places import PROTOCOLS, protocol_files, suite_files, utility_files

if TYPE_CHECKING:
    from benchmark.protocol.files import (
        SuitePart,
        load_protocol,
        load_suite,
        load_utility,
        protocols_of,
        read_suites,
    )
    from benchmark.protocol.settings import (
        Curve,
        FederationSettings,
        InverterSettings,
        Protocol,
        Suite,
        TextProtocol,
        VisionProtocol,
    )
    from benchmark.protocol.utility import Training, UtilityProtocol

__all__ = [
    "PROTOCOLS",
    "Curve",
    "FederationSettings",
    "InverterSettings",
    "Protocol",
    "Suite",
    "SuitePart",
    "TextProtocol",
    "Training",
    "UtilityProtocol",
    "VisionProtocol",
    "load_protocol",
    "load_suite",
    "load_utility",
    "protocol_files",
    "protocols_of",
    "read_suites",
    "suite_files",
    "utility_files",
]

# torch is imported when a protocol is first read, not to find the files.
_HOMES = {
    "SuitePart": "files",
    "load_protocol": "files",
    "load_suite": "files",
    "load_utility": "files",
    "protocols_of": "files",
    "read_suites": "files",
    "Curve": "settings",
    "FederationSettings": "settings",
    "InverterSettings": "settings",
    "Protocol": "settings",
    "Suite": "settings",
    "TextProtocol": "settings",
    "VisionProtocol": "settings",
    "Training": "utility",
    "UtilityProtocol": "utility",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
