"""Scaling: what a step would take with more workers, by what a few have measured."""

import dataclasses

from tfx_perf import cost
from tfx_perf.training.measuring.accounts import CommunicationAccount
from tfx_perf.training.measuring.network import Network


@dataclasses.dataclass(frozen=True)
class Scaling:
    """A step of workers that each compute on a batch of their own, and reduce in a ring.

    The network's reductions are scaled to what the step really waited for them, so that what
    TensorFlow reduces side by side, or while it still computes, counts as it did.

    Attributes:
        compute_seconds: of the slowest worker, without waiting.
        reduced_bytes: of each worker in a step.
        tensors: how many they are in.
        network: between the workers.
        exposed_ratio: of the time of the network's reductions, what the step waited.

    Example:
        >>> scaling = Scaling.of(record.communication)
        >>> scaling.efficiency(64)
    """

    compute_seconds: float
    reduced_bytes: float
    tensors: float
    network: Network
    exposed_ratio: float

    @classmethod
    def of(cls, account: CommunicationAccount | None) -> "Scaling | None":
        """Returns the model of a training; None if it had one worker, or nothing was measured.

        Args:
            account: of the training.
        """
        if account is None or account.network is None:
            return None
        wait_seconds = min(each.wait_time_seconds for each in account.replicas)
        reduction_seconds = account.network.reduction_seconds(
            account.reduced_bytes_per_step,
            workers=account.worker_count,
            tensors=account.reduced_tensors_per_step,
        )
        return cls(
            compute_seconds=max(0.0, account.step_time_seconds - wait_seconds),
            reduced_bytes=account.reduced_bytes_per_step,
            tensors=account.reduced_tensors_per_step,
            network=account.network,
            exposed_ratio=wait_seconds / reduction_seconds,
        )

    def on(self, network: Network) -> "Scaling":
        """Returns the same training on another network.

        Args:
            network: e.g. of another cluster.
        """
        return dataclasses.replace(self, network=network)

    def step_time_seconds(self, workers: int) -> float:
        """Returns what a step takes.

        Args:
            workers: how many, each with the batch that it has now.
        """
        reduction_seconds = self.network.reduction_seconds(
            self.reduced_bytes, workers=workers, tensors=self.tensors
        )
        return self.compute_seconds + self.exposed_ratio * reduction_seconds

    def efficiency(self, workers: int) -> float:
        """Returns the examples per second of each worker over those of one alone.

        Args:
            workers: how many.
        """
        return self.step_time_seconds(1) / self.step_time_seconds(workers)

    def speed_ratio(self, workers: int, *, account: CommunicationAccount) -> float:
        """Returns the examples per second of all workers over those of the training.

        Each epoch's beginning counts as it did.

        Args:
            workers: how many, each with the batch that it has now.
            account: of the training.
        """
        now = account.step_time_seconds + account.epoch_start_seconds
        then = self.step_time_seconds(workers) + account.epoch_start_seconds
        return workers / account.worker_count * now / then

    def cost_per_million_examples(
        self, workers: int, *, batch_size: float, price_per_hour: float
    ) -> float:
        """Returns what a million examples cost, in the currency of the price.

        Args:
            workers: how many, each on a machine of its own.
            batch_size: of one worker.
            price_per_hour: of one machine.
        """
        return cost.of_million_examples(
            examples_per_second=workers * batch_size / self.step_time_seconds(workers),
            price_per_hour=price_per_hour,
            host_count=workers,
        )
