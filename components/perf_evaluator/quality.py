"""Reads the metrics of TFX's Evaluator, with TFMA's own loader."""

import math

import tensorflow_model_analysis as tfma

from tfx_perf import errors


def overall_metrics(uri: str) -> dict[str, float]:
    """Returns the metrics over all examples, by name; those that are not finite are left out.

    A model with several outputs has them as `OUTPUT/NAME`. Slices are not read: TFMA's own
    thresholds are the place for those.

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
    found = {}
    for slice_key, outputs in result.slicing_metrics:
        if slice_key:
            continue
        for output, by_class in outputs.items():
            for name, value in by_class.get("", {}).items():
                number = value.get("doubleValue")
                if number is not None and math.isfinite(float(number)):
                    found[f"{output}/{name}" if output else name] = float(number)
    return found
