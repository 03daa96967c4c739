from typing import TYPE_CHECKING

from benchmark.lazy import lazily
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
    from benchmark.protocol.utility import (
        Figure,
        TextUtility,
        Training,
        UtilityProtocol,
        VisionUtility,
    )

__all__ = [
    "PROTOCOLS",
    "Curve",
    "FederationSettings",
    "Figure",
    "InverterSettings",
    "Protocol",
    "Suite",
    "SuitePart",
    "TextProtocol",
    "TextUtility",
    "Training",
    "UtilityProtocol",
    "VisionProtocol",
    "VisionUtility",
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
__getattr__ = lazily(
    __name__,
    {
        ".files": (
            "SuitePart",
            "load_protocol",
            "load_suite",
            "load_utility",
            "protocols_of",
            "read_suites",
        ),
        ".settings": (
            "Curve",
            "FederationSettings",
            "InverterSettings",
            "Protocol",
            "Suite",
            "TextProtocol",
            "VisionProtocol",
        ),
        ".utility": ("Figure", "TextUtility", "Training", "UtilityProtocol", "VisionUtility"),
    },
)
