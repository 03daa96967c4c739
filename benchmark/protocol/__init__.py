from benchmark.protocol.files import (
    PROTOCOLS,
    SuitePart,
    load_protocol,
    load_suite,
    protocol_files,
    protocols_of,
    suite_files,
)
from benchmark.protocol.settings import Protocol, Suite, TextProtocol, VisionProtocol

__all__ = [
    "PROTOCOLS",
    "Protocol",
    "Suite",
    "SuitePart",
    "TextProtocol",
    "VisionProtocol",
    "load_protocol",
    "load_suite",
    "protocol_files",
    "protocols_of",
    "suite_files",
]
