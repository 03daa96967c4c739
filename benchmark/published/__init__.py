from benchmark.published.ledger import Published, chosen, load_ledger, published, published_for
from benchmark.published.measured import Measured
from benchmark.published.settings import OF_TRAINING, SUITES, Paper, SuiteName, Table
from benchmark.published.values import Tolerance, Value
from benchmark.published.verdicts import NotRun, Ours, Verdict, in_order, judge, order

__all__ = [
    "OF_TRAINING",
    "SUITES",
    "Measured",
    "NotRun",
    "Ours",
    "Paper",
    "Published",
    "SuiteName",
    "Table",
    "Tolerance",
    "Value",
    "Verdict",
    "chosen",
    "in_order",
    "judge",
    "load_ledger",
    "order",
    "published",
    "published_for",
]
