"""The workloads by name."""

from benchmarks.input.workloads import criteo, fashion, flights, taxi, text
from benchmarks.input.workloads.workload import Workload

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        taxi.TAXI,
        flights.FLIGHTS,
        criteo.CRITEO,
        fashion.RAW,
        fashion.PNG,
        text.SPARSE,
        text.RAGGED,
    )
}

__all__ = ["WORKLOADS", "Workload"]
