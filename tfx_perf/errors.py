"""The exceptions that tfx-perf raises on purpose."""


class UserError(ValueError):
    """Something the user gave is wrong; the message says what and how to mend it.

    The message is one line: what was expected, `Received: name=value`, the remedy.
    The command line prints it without a traceback and exits with code 2.
    """


class NoFitError(UserError):
    """The training code came to its end without calling Keras' `Model.fit`."""


class MeasurementError(RuntimeError):
    """A measurement could not be made, or its result is impossible (e.g. MFU > 1)."""


class HalfAppliedError(RuntimeError):
    """The optimizer failed half-way: some weights are updated; only a checkpoint is whole."""


class RefusalError(RuntimeError):
    """The gate refused a run and was told to fail the pipeline then."""
