"""The conditions of a training plan: with equal keys, trials would choose the same plan."""


from tfx_perf import config
from tfx_perf.core import cache_key
from tfx_perf.core.interception import FitCall
from tfx_perf.hardware import devices
from tfx_perf.memory import batches
from tfx_perf.training.keras_api.variables import parameter_count
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.speedups import SPEEDUPS

# Settings that do not affect the choice of a plan: the seed, saving and recovery.
_IRRELEVANT = {
    "seed", "checkpoint_folder", "checkpoint_every_steps", "checkpoint_every_seconds", "max_loss",
    "resume_ignores", "max_rollbacks",
}  # fmt: skip


def plan_key(
    settings: config.PerfConfig,
    *,
    code: str,
    hyperparameters: str,
    data: str,
    input_candidate: str,
    worker_count: int,
) -> dict[str, str]:
    """Returns the parts of the key that are known before the training code calls `fit`.

    `code`, `hyperparameters` (a Tuner's, or empty) and `data` (their schema) are digests;
    `input_candidate` names the tuned input, or is empty.
    """
    strategy = settings.distribution.strategy
    users_choices = ((name, each.users_choice()) for name, each in SPEEDUPS.items())
    return {
        "code": code,
        "hyperparameters": hyperparameters,
        "data": data,
        "input": input_candidate,
        **devices.key_parts("keras", "tf-keras"),
        **{name: each for name, each in users_choices if each is not None},
        **({} if strategy is None else {"strategy": strategy}),
        **({} if worker_count == 1 else {"workers": str(worker_count)}),
        "speedups": ", ".join(SPEEDUPS),
        "training": settings.training.model_dump_json(exclude=_IRRELEVANT),
        "compilation": settings.compilation.model_dump_json(exclude={"aot_signature"}),
    }


def fit_key(call: FitCall, loop: FitLoop) -> dict[str, str]:
    """Returns the properties that distinguish one `fit` from another; reads no data."""
    model, data = call.model, call.arguments["x"]
    strategy = model.distribute_strategy
    return {
        "keras": loop.keras_api.package,
        "element_spec": cache_key.digest(str(data.element_spec).encode()),
        "batch_size": str(batches.declared_batch_size(call)),
        "parameter_count": str(parameter_count(model.trainable_weights)),
        "optimizer": type(model.optimizer).__name__,
        "strategy": f"{type(strategy).__name__}, {strategy.num_replicas_in_sync} replicas",
    }
