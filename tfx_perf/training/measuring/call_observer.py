"""CallObserver: what is told where figures of a training begin or cease to count."""


class CallObserver:
    """Is told of calls of the train function; does nothing."""

    def on_warm(self, step_count: int) -> None:
        """Is called once the first call and the warm-up are over.

        Args:
            step_count: steps so far.
        """

    def on_epoch_start(self, step_count: int) -> None:
        """Is called before the first call of an epoch.

        Args:
            step_count: steps so far.
        """

    def on_epoch_started(self, step_count: int) -> None:
        """Is called after it.

        Args:
            step_count: steps so far.
        """
