"""The properties in which a checkpoint must agree with the training that goes on from it."""

import collections
import dataclasses
import json
import operator
import re
from collections.abc import Mapping
from typing import Any

from tfx_perf.config import PerfConfig
from tfx_perf.core import cache_key
from tfx_perf.core.interception import FitCall
from tfx_perf.core.structural_hash import Describer
from tfx_perf.tf_internals import ancestry, random_state
from tfx_perf.training.keras_api.base_api import KerasApi, all_layers, learning_rate

_MOST_SHOWN = 5  # values
_SHORT = 100  # characters that are compared, and shown to users, as they are
# What stands in configurations and is another one in another process, or is compared elsewhere:
# serial numbers, shapes, and where classes are from.
_OMITTED = ("module", "registered_name", "shared_object_id", "build_config", "build_input_shape")
_AS_COMPILED = ("loss", "loss_weights", "metrics", "weighted_metrics", "auto_scale_loss")
# Settings that change what a training comes to, and of which model, data and variables do not tell.
SETTINGS = (
    "training.seed",
    "distribution.reduction_dtype",
    "distribution.sharding_invariant_random",
)
_AUTO_NUMBER = re.compile(r"_\d+$")


@dataclasses.dataclass(frozen=True)
class TrainingFingerprint:
    """Tells one training from another."""

    fields: dict[str, str]  # a checkpoint must agree in them
    values: dict[str, str]  # the plain ones among the digested values

    @property
    def folder_name(self) -> str:
        """The name of the training's folder of checkpoints."""
        return cache_key.digest(*(f"{k}={v}\n".encode() for k, v in self.fields.items()))


def of(
    call: FitCall, *, keras_api: KerasApi, train_length: int | None, settings: PerfConfig
) -> TrainingFingerprint:
    """Returns a training's fingerprint, without the names in `training.resume_ignores`."""
    described = Describer(ignored=settings.training.resume_ignores)
    model, arguments = call.model, call.arguments
    listed = model.variables if model.built else ()
    # tf_keras also lists the vocabularies of tables.
    shapes = [(str(v.dtype), tuple(v.shape)) for v in listed if hasattr(v, "assign")]
    fields = {
        "keras": keras_api.package,
        "variables": f"{len(shapes)} of {cache_key.digest(str(shapes).encode())}",
        "optimizer": type(model.optimizer).__name__,
        **_code(model, arguments, keras_api, described),
        "batch": str(arguments["x"].element_spec),
        "steps_per_epoch": str(train_length),
        "epochs": f"{arguments['initial_epoch']} to {arguments['epochs']}",
        "global seed": str(random_state.global_seed()),  # runs that differ in nothing else
        **{name: str(operator.attrgetter(name)(settings)) for name in SETTINGS},
    }
    values = {
        place: value
        for place, value in described.values.items()
        # The settings of layers are told of with the layers; for the model's name see `_code`.
        if not set(place.split(".")) & set(_OMITTED)
        and ".layers.[" not in place
        and place != "model.name"
    }
    return TrainingFingerprint(fields, values)


def differing_values(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Returns sentences on the values that both have and that differ; empty if none do."""
    places = [place for place in now if before.get(place, now[place]) != now[place]]
    if not places:
        return ""
    shown = [f"{place}: {before[place]} before, {now[place]} now" for place in places[:_MOST_SHOWN]]
    more = f"; and {len(places) - len(shown)} more" if len(places) > len(shown) else ""
    names = dict.fromkeys(_name(place) for place in places[:_MOST_SHOWN])
    return (
        f"Other values: {'; '.join(shown)}{more}. If they change nothing of what is trained, "
        f"training.resume_ignores: [{', '.join(names)}] leaves them out, of "
        "trainings that begin with it."
    )


def _code(
    model: Any, arguments: dict[str, Any], keras_api: KerasApi, describer: Describer
) -> dict[str, str]:
    """Returns the user's code in the training: its arguments, and what it does."""
    compiled = keras_api.compiled_with(model)
    optimizer = describer.at("optimizer", model.optimizer)
    config = optimizer.pop("config", None) if isinstance(optimizer, dict) else None
    if config is None:  # of a schedule in it, say, users did not write one
        config = _plain_attributes(model.optimizer)
    of_model = describer.at("model", model)
    ancestors = [
        [ancestor.name, ancestor.sizes, describer.at(ancestor.name, ancestor.functions)]
        for ancestor in ancestry.ancestors(arguments["x"])
    ]
    parts = {
        **{f"optimizer {name}": value for name, value in config.items() if name != "name"},
        "optimizer's class": optimizer,
        "learning rate": describer.at("learning rate", learning_rate(model.optimizer)),
        **{name: describer.at(name, compiled.get(name)) for name in _AS_COMPILED},
        "class_weight": describer.at("class_weight", arguments["class_weight"]),
        "data": ancestors,
        "model": [of_model, *(describer.at(x.name, x) for x in all_layers(model))],
    }
    if isinstance(of_model, dict) and isinstance(of_model["config"], dict):
        of_model["config"].pop("name", None)  # nothing is known by it
    names = _numbered(parts)
    texts = {name: json.dumps(_plain(part, names)) for name, part in parts.items()}
    return {
        **{f"code of {name}": digest for name, digest in describer.code.items()},
        **{
            name: text if len(text) < _SHORT else cache_key.digest(text.encode())
            for name, text in texts.items()
        },
    }


def _plain_attributes(optimizer: Any) -> dict[str, str]:
    return {
        name: repr(value)
        for name, value in sorted(vars(optimizer).items())
        if isinstance(value, (bool, int, float, str)) and not name.startswith("_")
    }


def _numbered(parts: Any) -> dict[str, str]:
    """Returns new names, numbered by appearance, as Keras counts on over a process."""
    names: dict[str, str] = {}
    counts: collections.Counter[str] = collections.Counter()

    def look(part: Any) -> None:
        if isinstance(part, dict):
            name = part.get("name")
            if isinstance(name, str) and name not in names:
                base = _AUTO_NUMBER.sub("", name)
                names[name] = f"{base}#{counts[base]}" if counts[base] else base
                counts[base] += 1
        for item in part.values() if isinstance(part, dict) else part:
            if isinstance(item, (dict, list)):
                look(item)

    look(parts)
    return names


def _plain(part: Any, names: dict[str, str]) -> Any:
    """Returns a part of the description without details that differ from process to process."""
    if isinstance(part, str):
        return names.get(part, part)
    if isinstance(part, list):
        return [_plain(item, names) for item in part]
    if not isinstance(part, dict):
        return part
    if part.get("class_name") == "__lambda__":  # marshalled; what the layer holds is compared
        return "lambda"
    return {
        names.get(key, key): _plain(item, names)
        for key, item in part.items()
        if key not in _OMITTED and not (key == "function" and not isinstance(item, str))
    }


def _name(place: str) -> str:
    return next(part for part in reversed(place.split(".")) if not part.startswith("["))
