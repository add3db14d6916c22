"""The folder that OptimizedTrainer and the workers of its job share."""

import pathlib
import shutil
from typing import Any

from tfx.utils import json_utils

from tfx_perf.components import training_job
from tfx_perf.components.optimized_trainer.child import TrainingResult
from tfx_perf.components.types import Artifacts
from tfx_perf.core import errors, storage
from tfx_perf.core.workers import Worker
from tfx_perf.training.tuning.earlier import KnownPlan

_PLAN_FILE, _RESULT_FILE = "known_plan.json", "result.json"
_OUTPUTS = "outputs"
# `KnownPlan` holds the information that they have about the plan.
_UNUSED_INPUTS = {"previous_metrics"}
_CODE_KEYS = ("module_file", "module_path")


class Exchange:
    """The workers' instructions and results, in one training's folder that all of them see.

    With `sees_all`, the workers see all files that this process sees.
    """

    def __init__(self, folder: pathlib.Path, *, sees_all: bool = False) -> None:
        self.folder = folder
        self._sees_all = sees_all

    def prepare(self, job: training_job.TrainingJob, known: KnownPlan) -> None:
        """Rewrites the instructions, with copies of local inputs and code for remote workers."""
        shutil.rmtree(self.folder, ignore_errors=True)
        try:
            self.folder.mkdir()
        except OSError as error:
            raise errors.UserError(
                "Expected a folder that OptimizedTrainer and the workers mount and can write to. "
                f"Received: distribution.job.shared_folder={self.folder.parent} ({error})."
            ) from error
        self._fill(job)
        known.write(self.folder / _PLAN_FILE)

    @property
    def job(self) -> training_job.TrainingJob:
        """The job that the workers train."""
        return training_job.TrainingJob.read(self.folder / training_job.FILE_NAME)

    @property
    def known_plan(self) -> KnownPlan:
        """OptimizedTrainer's knowledge of the plan."""
        return KnownPlan.read(self.folder / _PLAN_FILE)

    def begin(self, worker: Worker) -> pathlib.Path:
        """Returns the folder that a worker saves to, without leftovers from before a restart."""
        folder = self.folder / (_OUTPUTS if worker.is_chief else f"worker-{worker.index}")
        shutil.rmtree(folder, ignore_errors=True)
        if worker.is_chief:
            (self.folder / _RESULT_FILE).unlink(missing_ok=True)
        return folder

    def report(self, result: TrainingResult) -> None:
        """Writes the chief's record, when its outputs are complete."""
        result.write(self.folder / _RESULT_FILE)

    @property
    def result(self) -> TrainingResult | None:
        """The chief's record; None if it is not complete yet."""
        path = self.folder / _RESULT_FILE
        return TrainingResult.read(path) if path.exists() else None

    def collect(self, output_dict: Artifacts) -> None:
        """Copies the chief's outputs to the artifacts, even over those of a killed attempt."""
        for source in sorted((self.folder / _OUTPUTS).iterdir()):
            storage.copy_tree(source, storage.path(output_dict[source.name][0].uri))

    def _fill(self, job: training_job.TrainingJob) -> None:
        inputs = {key: items for key, items in job.input_dict.items() if key not in _UNUSED_INPUTS}
        for key, items in inputs.items():
            for number, item in enumerate(items):
                item.uri = self._share(item.uri, f"inputs/{key}-{number}")
        properties: dict[str, Any] = dict(job.exec_properties)
        for key in _CODE_KEYS:
            if properties.get(key):
                # TFX writes a packaged module as `module@path`.
                name, at, path = properties[key].rpartition("@")
                copied = self._share(path, f"code/{pathlib.Path(path).name}")
                properties[key] = f"{name}{at}{copied}"
        job.model_copy(
            update={"inputs": json_utils.dumps(inputs), "exec_properties": properties}
        ).write(self.folder / training_job.FILE_NAME)

    def _share(self, uri: str, place: str) -> str:
        """Returns where workers find a file or folder, copied into the folder if necessary."""
        path = pathlib.Path(uri)
        is_seen = self._sees_all or path.is_relative_to(self.folder.parent)
        if is_seen or storage.is_remote(uri):
            return uri
        target = self.folder / place
        target.parent.mkdir(exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, target)
        else:
            shutil.copy2(path, target)
        return str(target)
