"""The names of quality metrics: which way is better, and the values that can occur.

Evaluator's output has only names: those of TFMA's and Keras' metrics and losses, and those that
users choose. So a name is read as words, of which the last known one counts:
`accuracy_head_mean_squared_error` is an error. Unknown names have no direction.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Iterator
from typing import Literal

Better = Literal["lower", "higher", "neither"]
_Bounds = tuple[float, float]

_ANY: _Bounds = (-math.inf, math.inf)
_SHARE: _Bounds = (0.0, 1.0)
_SIGNED_SHARE: _Bounds = (-1.0, 1.0)
_NOT_NEGATIVE: _Bounds = (0.0, math.inf)


@dataclasses.dataclass(frozen=True)
class Meaning:
    """The meaning of a metric's name: which way is better, and the values that can occur.

    `neither` is for counts, and for metrics that are best somewhere in between.
    """

    better: Better
    bounds: _Bounds = _ANY


# Meanings of words that stand alone between underscores, as regular expressions.
_WORDS: dict[tuple[Better, _Bounds], tuple[str, ...]] = {
    ("higher", _SHARE): (
        "acc", "auc", "f1", "f2", "f1_score", "f_?beta_score", "f_score", "ndcg", "mrr",
        "mean_reciprocal_rank", "iou", "io_u", "jaccard", "dice_(?:score|coef|coefficient)",
        "tversky_index", "sensitivity", "specificity", "tpr", "tnr", "ppv", "npv",
        "true_(?:positive|negative)_rate", "(?:positive|negative)_predictive_value", "hit_rate",
        "threat_score", "fowlkes_mallows_index", "exact_match", "squared_pearson_correlation",
        "rouge(?:_?[0-9]|_?l|_?lsum)?", "ssim",
    ),
    ("higher", _SIGNED_SHARE): (
        "correlation", "correlation_coefficient", "mcc", "kappa", "cosine_similarity",
        "cosine_proximity", "informedness", "markedness", "gini",
    ),
    ("higher", (-math.inf, 1.0)): ("r2", "r2_score", "r_squared", "explained_variance"),
    ("higher", (0.0, 100.0)): ("bleu",),
    ("higher", _NOT_NEGATIVE): ("positive_likelihood_ratio", "diagnostic_odds_ratio", "dcg"),
    ("higher", _ANY): ("log_likelihood", "(?:relative_)?coefficient_of_discrimination", "psnr"),
    ("lower", _SHARE): (
        "false_(?:positive|negative|discovery|omission)_rate", "fpr", "fnr", "fdr", "fall_out",
        "miss_rate", "tversky",
    ),
    ("lower", (0.0, 2.0)): ("brier", "brier_score"),
    ("lower", (1.0, math.inf)): ("perplexity", "ppl", "min_label_position"),
    ("lower", _NOT_NEGATIVE): (
        "mse", "rmse", "mae", "mape", "smape", "msle", "rmsle", "bce", "cce", "log_?loss",
        "(?:absolute|squared|absolute_percentage|squared_logarithmic|log_cosh)_error", "error_rate",
        "hinge", "huber", "log_?cosh", "wer", "cer", "ctc", "circle", "negative_likelihood_ratio",
        "distance",
    ),
    ("lower", _ANY): ("poisson", "kld", "nll", "negative_log_likelihood", "deviance"),
    ("neither", _ANY): (
        # They grow with the examples.
        "count", "(?:true|false)_(?:positives?|negatives?)", "tp", "tn", "fp", "fn",
        "total_queries", "total_documents", "(?:min|max)_documents",
        # Determined by the data, a threshold or another model.
        "calibration", "mean_label", "mean_prediction", "prevalence", "prevalence_threshold",
        "predicted_positive_rate", "threshold", "attributions", "flip_rates?",
        "prediction_difference", "model_cosine_similarity",
        # Not numbers.
        "plot", "sampler?", "confusion_matri(?:x|ces)", "query_statistics",
    ),
}  # fmt: skip
# Meanings of words that may be joined with others before them, as in `logloss`.
_ENDINGS: dict[tuple[Better, _Bounds], tuple[str, ...]] = {
    ("higher", _SHARE): ("accuracy", "precision", "recall"),
    ("lower", _NOT_NEGATIVE): ("cross_?entropy",),
    ("lower", _ANY): ("loss", "error(?!_free)", "divergence"),
}

_PATTERNS = [
    (re.compile(rf"{begin}(?:{'|'.join(words)})(?![a-z])"), Meaning(better, bounds))
    for begin, table in (("(?<![a-z0-9])", _WORDS), ("", _ENDINGS))
    for (better, bounds), words in table.items()
]
_IS_NEGATED = re.compile(r"(?:^|_)(?:neg|negative|minus)_")
_IS_IN_PERCENT = re.compile(r"(?<![a-z])(?:percent|percentage|pct)(?![a-z])")


@functools.lru_cache(maxsize=4096)
def meaning(name: str) -> Meaning | None:
    """Returns the meaning of a metric's name; None if it is unknown.

    Names are as Keras and TFMA write them: with or without an output's name or `val_` in front and
    a number at the end, and spelled like a class or a function.
    """
    words = _in_words(name.rpartition("/")[2])  # without the output, as in `loss_head/auc`
    # `recall_at_false_positive_rate` measures the recall.
    return _of(words.partition("_at_")[0]) or _of(words)


def _of(words: str) -> Meaning | None:
    longest = max(_matches(words), key=lambda match: match[:2], default=None)
    if longest is None:
        return None
    _, _, begin, meaning = longest
    # A negated error, as in scikit-learn; the precision of a negative class is still a precision.
    if meaning.better == "lower" and _IS_NEGATED.search(words[:begin]):
        return Meaning("higher")
    if meaning.bounds == _SHARE and _IS_IN_PERCENT.search(words):
        return Meaning(meaning.better, (0.0, 100.0))
    return meaning


def _matches(words: str) -> Iterator[tuple[int, int, int, Meaning]]:
    for pattern, meaning in _PATTERNS:
        for match in pattern.finditer(words):
            yield match.end(), match.end() - match.start(), match.start(), meaning


def _in_words(name: str) -> str:
    """Returns a name in lower case with underscores, without the number of a duplicate."""
    name = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    name = re.sub(r"([a-z])([A-Z])", r"\1_\2", name).replace("@", "_at_")
    name = re.sub(r"[^a-z0-9]+", "_", name.lower())
    return re.sub(r"_\d+$", "", name)
