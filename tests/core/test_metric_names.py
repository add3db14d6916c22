"""Names of quality metrics: all of Keras', tf_keras' and TFMA's, and how users write them."""

import inspect
import re
import subprocess
import sys

import pytest

from tfx_perf.core import metric_names, metrics
from tfx_perf.core.metrics import Direction

# By hand, of every name below. A new one of a library has to be put where it belongs.
_EXPECTED = {
    "higher": """
        auc accuracy binary_accuracy binary_io_u categorical_accuracy concordance_correlation
        cosine_similarity f1_score f_beta_score fbeta_score io_u mean_io_u one_hot_io_u
        one_hot_mean_io_u pearson_correlation precision precision_at_recall r2_score recall
        recall_at_precision sensitivity_at_specificity sparse_categorical_accuracy
        sparse_top_k_categorical_accuracy specificity_at_sensitivity top_k_categorical_accuracy
        cosine_proximity
        auc_precision_recall average_precision average_recall balanced_accuracy bleu
        coco_average_precision coco_average_recall coco_mean_average_precision
        coco_mean_average_recall coefficient_of_discrimination diagnostic_odds_ratio exact_match
        fowlkes_mallows_index informedness markedness matthews_correlation_coefficient max_recall
        mean_average_precision mean_average_recall ndcg negative_predictive_value npv
        object_detection_max_recall object_detection_precision
        object_detection_precision_at_recall object_detection_recall positive_likelihood_ratio ppv
        recall_at_false_positive_rate relative_coefficient_of_discrimination rouge
        set_match_precision set_match_recall specificity squared_pearson_correlation threat_score
        tnr tpr
    """,
    "lower": """
        binary_crossentropy binary_focal_crossentropy categorical_crossentropy
        categorical_focal_crossentropy categorical_generalized_cross_entropy categorical_hinge
        circle ctc hinge huber huber_loss kl_divergence kld kullback_leibler_divergence log_cosh
        log_cosh_error logcosh mae mape mean_absolute_error mean_absolute_percentage_error
        mean_relative_error mean_squared_error mean_squared_logarithmic_error mse msle poisson
        root_mean_squared_error sparse_categorical_crossentropy squared_hinge tversky loss bce
        binary_cross_entropy categorical_cross_entropy fall_out false_discovery_rate
        false_omission_rate fnr fpr min_label_position miss_rate negative_likelihood_ratio
    """,
    "neither": """
        false_negatives false_positives true_negatives true_positives
        boolean_flip_rates calibration calibration_plot confusion_matrix_at_thresholds
        confusion_matrix_plot example_count false_negative_feature_sampler
        false_positive_feature_sampler fixed_size_sample flip_rate fn fp mean_absolute_attributions
        mean_attributions mean_label mean_prediction model_cosine_similarity
        multi_class_confusion_matrix_at_thresholds multi_class_confusion_matrix_plot
        multi_label_confusion_matrix_plot neg_to_neg_flip_rate neg_to_pos_flip_rate
        object_detection_confusion_matrix_plot object_detection_threshold_at_recall
        pos_to_neg_flip_rate pos_to_pos_flip_rate predicted_positive_rate prevalence
        prevalence_threshold query_statistics score_distribution_plot
        semantic_segmentation_confusion_matrix semantic_segmentation_false_positive
        semantic_segmentation_false_positives semantic_segmentation_true_positive
        semantic_segmentation_true_positives symmetric_flip_rate symmetric_prediction_difference
        threshold_at_recall tn total_absolute_attributions total_attributions tp
        weighted_example_count total_queries total_documents min_documents max_documents
    """,
    # Which way is better depends on what they are made of: `dice` is a loss of Keras', and in most
    # projects the coefficient.
    "": "mean mean_tensor mean_metric_wrapper sum dice",
}  # fmt: skip
_BETTER = {name: better for better, names in _EXPECTED.items() for name in names.split()}
# Of the modules, but no metrics.
_NO_METRICS = {"deserialize", "get", "serialize", "loss_function", "metric", "reduction"}
# TFMA's own process, as it is imported with TFX.
_OF_TFMA = """
import importlib, pkgutil
import tensorflow_model_analysis.metrics as package
from tensorflow_model_analysis.metrics import metric_types
for found in pkgutil.iter_modules(package.__path__):
    if not found.name.endswith("_test"):
        module = importlib.import_module(f"{package.__name__}.{found.name}")
        for name, value in vars(module).items():
            if name.endswith("_NAME") and not name.startswith("_") and isinstance(value, str):
                print("name", value)
print(*("name " + name for name in metric_types.registered_metrics()), sep="\\n")
"""


def _snake(name: str) -> str:
    """Returns the name of a class as Keras makes one of it."""
    name = re.sub(r"\W+", "", name)
    name = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def _direction(name: str) -> str:
    found = metric_names.meaning(name)
    return found.better if found else ""


def _check(names: set[str]) -> None:
    """Checks that each is classified by hand, and read as that."""
    known = {name for name in names if _snake(name) not in _NO_METRICS}
    assert not {name for name in known if _snake(name) not in _BETTER}
    assert {name: _direction(name) for name in known} == {
        name: _BETTER[_snake(name)] for name in known
    }


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_every_metric_and_loss_of_keras_is_classified(package):
    module = pytest.importorskip(package)
    found = {
        name
        for each in (module.metrics, module.losses)
        for name, value in vars(each).items()
        if not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value))
    }
    assert len(found) > 60
    _check(found)


@pytest.mark.slow
def test_every_metric_of_tfma_is_classified():
    printed = subprocess.run(
        [sys.executable, "-c", _OF_TFMA], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    found = set(re.findall(r"^name (\w+)$", printed, re.MULTILINE))
    preprocessors = {name for name in found if name.endswith("preprocessor")}
    internal = {name for name in found if name.startswith("_")}
    assert len(found) > 80
    _check(found - preprocessors - internal)


@pytest.mark.parametrize("pattern", ["{}", "val_{}", "{}_1", "head/{}", "head_{}", "accuracy_{}_2"])
def test_what_stands_around_a_name_changes_nothing(pattern):
    for name, better in _BETTER.items():
        if better or not pattern.startswith("accuracy"):  # otherwise it is a word of the name
            assert _direction(pattern.format(name)) == better, name


@pytest.mark.parametrize(
    ("better", "names"),
    [
        ("lower", """rmse RMSE MSE brier_score false_positive_rate perplexity dice_loss logloss
         expected_calibration_error word_error_rate negative_log_likelihood
         accuracy_head_mean_squared_error accuracy_head/mean_squared_error"""),
        ("higher", """true_positive_rate recall_at_error_rate ndcg@10 top_5_accuracy val_acc
         mean_iou dice_coefficient log_likelihood neg_mean_squared_error negative_precision
         loss_head/auc"""),
        ("", "error_free_share fraud lossless_share"),
        ("neither", "accuracy_head/example_count"),
    ],
)  # fmt: skip
def test_names_that_users_give(better, names):
    for name in names.split():
        assert _direction(name) == better, name


def test_the_catalogue_goes_by_the_names():
    assert metrics.lookup("evaluation/head/rmse").direction is Direction.LOWER
    assert metrics.lookup("evaluation/true_positives").direction is Direction.NONE
    assert metrics.lookup("evaluation/fraud").direction is Direction.NONE
    unread = [metrics.is_unread(f"evaluation/{name}") for name in ("fraud", "fp", "auc")]
    assert unread == [True, False, False]
