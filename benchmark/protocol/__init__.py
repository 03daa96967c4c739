from benchmark.protocol.files import (
    SuitePart,
    load_protocol,
    load_suite,
    load_utility,
    protocols_of,
    read_suites,
)
from benchmark.protocol.places import PROTOCOLS, protocol_files, suite_files, utility_files
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
