from benchmark.protocol.files import (
    PROTOCOLS,
    SuitePart,
    load_protocol,
    load_suite,
    protocol_files,
    protocols_of,
    read_suites,
    suite_files,
)
from benchmark.protocol.settings import (
    Curve,
    FederationSettings,
    Protocol,
    Suite,
    TextProtocol,
    VisionProtocol,
)

__all__ = [
    "PROTOCOLS",
    "Curve",
    "FederationSettings",
    "Protocol",
    "Suite",
    "SuitePart",
    "TextProtocol",
    "VisionProtocol",
    "load_protocol",
    "load_suite",
    "protocol_files",
    "protocols_of",
    "read_suites",
    "suite_files",
]
