"""How the components write and read the payloads of their artifacts."""

import logging
import types
from collections.abc import Iterator, Mapping, Sequence

from tfx.types import artifact

from tfx_perf import errors, metrics, records, report, storage, unmeasured

REPORT_FILE = "report.html"
REMARK = "remark"
"""The custom property with what went wrong though the node succeeded, in one line."""

_LOGGER = logging.getLogger(__name__)


def publish(
    target: artifact.Artifact,
    record: records.Record,
    *,
    file_name: str,
    figures: Mapping[str, float | int | None],
    labels: Mapping[str, str | None] = types.MappingProxyType({}),
    page: report.Report | None = None,
    remark: str = "",
) -> None:
    """Writes the payload and the report, and sets the custom properties.

    Args:
        target: the output artifact, on a disk or in an object store.
        record: the payload.
        file_name: the payload's name inside the artifact.
        figures: catalogue key to value; those that are None or not finite are left out.
        labels: short strings to record beside the figures; those that are None are left out.
        page: the report, if the artifact has one.
        remark: what went wrong though the node succeeds; it is logged, and whoever runs a pipeline
            is shown it. Empty if all is well.
    """
    remark = " ".join(remark.split())
    if remark:
        _LOGGER.warning("%s", remark)
    folder = storage.make_folder(target.uri)
    record.write(folder / file_name)
    if page:
        page.write(folder / REPORT_FILE)
    for key, value in metrics.checked(figures).items():
        target.set_float_custom_property(key, value)
    for key, label in {**labels, REMARK: remark or None}.items():
        if label is not None:
            target.set_string_custom_property(key, label)


def publish_unmeasured(
    target: artifact.Artifact,
    reason: str,
    *,
    title: str,
    labels: Mapping[str, str],
) -> None:
    """Writes `unmeasured.json` and a report in the place of figures.

    Args:
        target: the output artifact.
        reason: a sentence without its full stop.
        title: of the report that there would be.
        labels: short strings to record.
    """
    verdict = f"Nothing was measured: {reason}."
    publish(
        target,
        unmeasured.Unmeasured(reason=reason),
        file_name=unmeasured.FILE_NAME,
        figures={},
        labels=labels,
        page=report.Report(title=title, verdict=verdict),
        remark=verdict,
    )


def newest_first(
    items: Sequence[artifact.Artifact], kind: type[records.RecordT], *, file_name: str
) -> Iterator[tuple[str, records.RecordT]]:
    """Yields the artifacts' folders and payloads; what cannot be read is skipped with a warning.

    Args:
        items: artifacts of runs before.
        kind: what they hold.
        file_name: the payload's name inside an artifact.
    """
    for item in sorted(items, key=lambda item: item.id, reverse=True):
        try:
            yield item.uri, kind.read(storage.path(item.uri) / file_name)
        except errors.UserError as error:
            _LOGGER.warning("A previous plan is skipped: %s", error)
