"""Reads the metrics of TFX's Evaluator, with TFMA's own loader."""

import math

import tensorflow_model_analysis as tfma

from tfx_perf import errors

_DIFFERENCE = "_diff"  # TFMA's suffix for what it adds where there is a baseline model


def overall_metrics(uri: str) -> tuple[dict[str, float], dict[str, float]]:
    """Returns the candidate's metrics over all examples, and what they are above the baseline's.

    Both by name, and only those that are finite; the second is empty where Evaluator had no
    baseline model. A model with several outputs has them as `OUTPUT/NAME`. Slices are not read:
    TFMA's own thresholds are the place for those.

    Args:
        uri: of a `ModelEvaluation`.

    Raises:
        UserError: TFMA cannot read the folder.
    """
    try:
        result = tfma.load_eval_result(uri)
    except Exception as error:  # TFMA documents none, and raises what its readers do
        raise errors.UserError(
            f"Expected the evaluation that TFX's Evaluator has written. Received: uri={uri} "
            f"({' '.join(str(error).split())[:200]})."
        ) from error
    if not result.slicing_metrics:  # TFMA takes a folder without an evaluation for an empty one
        raise errors.UserError(
            "Expected the evaluation that TFX's Evaluator has written, with metrics of the "
            f"candidate. Received: uri={uri}, which has none."
        )
    found: dict[str, float] = {}
    gains: dict[str, float] = {}
    for slice_key, outputs in result.slicing_metrics:
        if slice_key:
            continue
        for output, by_class in outputs.items():
            for name, value in by_class.get("", {}).items():
                number = float(value.get("doubleValue", math.nan))
                own = name.removesuffix(_DIFFERENCE)
                is_gain = own != name and own in by_class[""]  # not a metric of that name
                if math.isfinite(number):
                    key = own if is_gain else name
                    group = gains if is_gain else found
                    group[f"{output}/{key}" if output else key] = number
    return found, gains
