"""CallObserver: what is told where figures of a training begin or cease to count."""


class CallObserver:
    """Is told after how many steps figures begin or cease to count; does nothing."""

    def on_warm(self, step_count: int) -> None:
        """Is called once the first call and the warm-up are over."""

    def on_epoch_start(self, step_count: int) -> None:
        """Is called before the first call of an epoch."""

    def on_epoch_started(self, step_count: int) -> None:
        """Is called after it."""
