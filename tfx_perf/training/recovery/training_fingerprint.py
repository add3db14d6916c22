"""The properties in which a checkpoint must agree with the training that resumes from it."""

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

_MOST_SHOWN = 5  # differing values
_SHORT = 100  # characters; shorter texts are compared, and shown to users, without digesting them
# Entries of configurations that differ between processes or are compared elsewhere: serial numbers,
# shapes, and the modules of classes.
_OMITTED = ("module", "registered_name", "shared_object_id", "build_config", "build_input_shape")
_AS_COMPILED = ("loss", "loss_weights", "metrics", "weighted_metrics", "auto_scale_loss")
# Settings that change a training's result without showing in its model, data or variables.
SETTINGS = (
    "training.seed",
    "distribution.reduction_dtype",
    "distribution.sharding_invariant_random",
)
_AUTO_NUMBER = re.compile(r"_\d+$")


@dataclasses.dataclass(frozen=True)
class TrainingFingerprint:
    """Distinguishes one training from another."""

    fields: dict[str, str]  # must be equal in a checkpoint
    values: dict[str, str]  # plain values among those in the digests

    @property
    def folder_name(self) -> str:
        """The name of the training's checkpoint folder."""
        return cache_key.digest(*(f"{k}={v}\n".encode() for k, v in self.fields.items()))


def of(
    call: FitCall, *, keras_api: KerasApi, train_length: int | None, settings: PerfConfig
) -> TrainingFingerprint:
    """Returns a training's fingerprint, without the names in `training.resume_ignores`."""
    described = Describer(ignored=settings.training.resume_ignores)
    model, arguments = call.model, call.arguments
    listed = model.variables if model.built else ()
    # tf_keras also lists the vocabularies of lookup tables.
    shapes = [(str(v.dtype), tuple(v.shape)) for v in listed if hasattr(v, "assign")]
    fields = {
        "keras": keras_api.package,
        "variables": f"{len(shapes)} of {cache_key.digest(str(shapes).encode())}",
        "optimizer": type(model.optimizer).__name__,
        **_code(model, arguments, keras_api, described),
        "batch": str(arguments["x"].element_spec),
        "steps_per_epoch": str(train_length),
        "epochs": f"{arguments['initial_epoch']} to {arguments['epochs']}",
        "global seed": str(random_state.global_seed()),  # for runs that differ only in it
        **{name: str(operator.attrgetter(name)(settings)) for name in SETTINGS},
    }
    values = {
        place: value
        for place, value in described.values.items()
        # The settings of layers are listed with the layers; for the model's name see `_code`.
        if not set(place.split(".")) & set(_OMITTED)
        and ".layers.[" not in place
        and place != "model.name"
    }
    return TrainingFingerprint(fields, values)


def differing_values(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Returns sentences on the values that are in both and differ; empty if there are none."""
    places = [place for place in now if before.get(place, now[place]) != now[place]]
    if not places:
        return ""
    shown = [f"{place}: {before[place]} before, {now[place]} now" for place in places[:_MOST_SHOWN]]
    more = f"; and {len(places) - len(shown)} more" if len(places) > len(shown) else ""
    names = dict.fromkeys(_name(place) for place in places[:_MOST_SHOWN])
    return (
        f"Other values: {'; '.join(shown)}{more}. If they do not affect the training, add "
        f"training.resume_ignores: [{', '.join(names)}]; this applies to trainings that are "
        "started with it."
    )


def _code(
    model: Any, arguments: dict[str, Any], keras_api: KerasApi, describer: Describer
) -> dict[str, str]:
    compiled = keras_api.compiled_with(model)
    optimizer = describer.at("optimizer", model.optimizer)
    config = optimizer.pop("config", None) if isinstance(optimizer, dict) else None
    if config is None:  # e.g. a user's schedule in it has no `get_config`
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
        of_model["config"].pop("name", None)  # it identifies nothing
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
    """Returns new names, numbered by appearance, as Keras' counters never restart in a process."""
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
    if part.get("class_name") == "__lambda__":  # marshaled; the layer's function itself is compared
        return "lambda"
    return {
        names.get(key, key): _plain(item, names)
        for key, item in part.items()
        if key not in _OMITTED and not (key == "function" and not isinstance(item, str))
    }


def _name(place: str) -> str:
    return next(part for part in reversed(place.split(".")) if not part.startswith("["))
