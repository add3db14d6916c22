"""Settings of XLA."""

from tfx_perf.settings.section import Section


class CompilationSettings(Section):
    """XLA.

    Attributes:
        enabled: try XLA; it is used only where the trials find it faster.
        aot_signature: the signature of the saved model to compile ahead of time for this kind
            of CPU, e.g. `serving_default`, into `assets.extra/aot_cpu` beside it; None: none.
    """

    enabled: bool = True
    aot_signature: str | None = None
