from benchmark.toolbox.inverter.network import Inverter, InverterShape
from benchmark.toolbox.inverter.training import Example, fit, least_over_pairings

__all__ = ["Example", "Inverter", "InverterShape", "fit", "least_over_pairings"]
