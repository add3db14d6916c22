"""Writes and reads the payloads of the components' artifacts."""

import logging
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tfx.dsl.components.base import base_executor
from tfx.types import artifact

from tfx_perf.core import console, errors, metrics, records, storage, unmeasured
from tfx_perf.report import page as report_page

HEADLINE = "headline"
"""The custom property that holds the report's headline."""
REMARK = "remark"
"""The custom property that says in one line what went wrong although the node succeeded."""
MAY_PASS = "may_pass"
"""The custom property that is set if another execution may find what this one did not."""

_REPORTING_INPUTS = {
    "input_plan": "InputTuner",
    "memory_profile": "MemoryProfiler",
    "perf_metrics": "OptimizedTrainer",
}

_LOGGER = logging.getLogger(__name__)


def origin_of(
    context: base_executor.BaseExecutor.Context | None,
    input_dict: Mapping[str, Sequence[artifact.Artifact]],
) -> report_page.Origin:
    """Returns the header of a node's report, with links to the reports on its inputs."""
    reports = [
        (name, str(storage.path(item.uri) / report_page.FILE_NAME))
        for key, name in _REPORTING_INPUTS.items()
        for item in input_dict.get(key) or []
    ]
    pipeline = context.pipeline_info if context else None
    node = context.pipeline_node if context else None
    return report_page.Origin(
        pipeline=pipeline.id if pipeline else "",
        run_id=(context.pipeline_run_id if context else None) or "",
        node=node.node_info.id if node else "",
        siblings=tuple((name, file) for name, file in reports if storage.is_file(file)),
    )


def publish(
    target: artifact.Artifact,
    record: records.Record,
    *,
    file_name: str,
    figures: Mapping[str, float | int | None] = types.MappingProxyType({}),
    labels: Mapping[str, str | None] = types.MappingProxyType({}),
    page: report_page.Report | None = None,
    origin: report_page.Origin = report_page.UNKNOWN,
    remark: str = "",
    may_pass: bool = False,
    details: Iterable[str] = (),
) -> None:
    """Writes the payload and the report, if there is one, and sets the custom properties.

    `figures` (keyed by the catalogue) that are None or not finite are left out, and `labels` that
    are None. A `remark` says what went wrong although the node succeeds; `FailedBeforeDriver` uses
    `may_pass`, which says that it may not recur. If no parent shows this process's status, the
    report's headline and `details` are printed when the process ends.
    """
    remark = " ".join(remark.split())
    if remark:
        _LOGGER.warning("%s", remark)
    folder = storage.make_folder(target.uri)
    record.write(folder / file_name)
    if page:
        page.write(folder / report_page.FILE_NAME, origin=origin)
        labels = {**labels, HEADLINE: page.verdict}
        if not console.is_status_watched():
            where = f"  report: {folder / report_page.FILE_NAME}"
            console.say_at_exit(f"{origin.node or page.title}: {page.verdict}", *details, where)
    for key, value in metrics.checked(figures).items():
        target.set_float_custom_property(key, value)
    for key, label in {**labels, REMARK: remark or None}.items():
        if label is not None:
            target.set_string_custom_property(key, label)
    if may_pass:
        target.set_int_custom_property(MAY_PASS, 1)


def publish_unmeasured(
    target: artifact.Artifact,
    missing: unmeasured.MissingMeasurement,
    *,
    title: str,
    labels: Mapping[str, str],
    origin: report_page.Origin = report_page.UNKNOWN,
) -> None:
    """Writes `unmeasured.json` and a report."""
    verdict = f"Nothing was measured: {missing.reason}."
    publish(
        target,
        missing,
        file_name=unmeasured.FILE_NAME,
        labels=labels,
        page=report_page.Report(title=title, verdict=verdict),
        origin=origin,
        remark=verdict,
        may_pass=missing.may_pass,
    )


def newest_first(
    items: Sequence[artifact.Artifact], kind: type[records.RecordT], *, file_name: str
) -> Iterator[tuple[str, records.RecordT]]:
    """Yields the artifacts' folders and payloads; skips unreadable ones with a warning."""
    for item in sorted(items, key=lambda item: item.id, reverse=True):
        try:
            yield item.uri, kind.read(storage.path(item.uri) / file_name)
        except errors.UserError as error:
            _LOGGER.warning("A previous plan is skipped: %s", error)
