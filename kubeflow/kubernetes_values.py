"""Values of containers on Kubernetes."""

import decimal
import re
from typing import Annotated, Any, Literal

import pydantic

from tfx_perf.config.base import NotEmpty, PathText, Section

# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity
_QUANTITY = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?")


def _checked_quantity(text: Any) -> str:
    text = str(text)  # YAML makes a number of 2
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise ValueError('a Kubernetes quantity, e.g. "500m", "2" or "8Gi"')
    if not decimal.Decimal(match[1]):
        raise ValueError("a quantity above 0")
    return text


def _checked_sources(variables: dict[str, str]) -> dict[str, str]:
    for source in variables.values():
        secret, _, key = source.partition("/")
        if not (secret and key):
            raise ValueError("secret/key for each variable")
    return variables


def _checked_mounts(mounts: dict[str, str]) -> dict[str, str]:
    for folder in mounts:
        if not folder.startswith("/"):
            raise ValueError(f"absolute folders to mount at, not {folder!r}")
    return mounts


# Cores or bytes as Kubernetes writes them, above 0.
Quantity = Annotated[str, pydantic.BeforeValidator(_checked_quantity)]
# Variable to `secret/key`.
SecretVariables = Annotated[dict[str, str], pydantic.AfterValidator(_checked_sources)]
# Absolute folder to the name of what is mounted there.
Mounts = Annotated[dict[PathText, str], pydantic.AfterValidator(_checked_mounts)]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]


class Toleration(Section):
    """A taint that a pod tolerates, in Kubernetes' own fields.

    https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration

    Attributes:
        key: of the taint; None, with `Exists`: every taint.
        operator: `Equal` compares the taint's value, `Exists` does not; None: `Equal`.
        value: of the taint.
        effect: of the taint; None: every effect.
        tolerationSeconds: how long the pod stays on a machine that gets the taint `NoExecute`;
            None: as long as it runs.
    """

    key: NotEmpty | None = None
    operator: Literal["Equal", "Exists"] | None = None
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    tolerationSeconds: int | None = None  # noqa: N815 (Kubernetes' name)

    # What Kubernetes asks for, too, but only when the pod is to be made.
    @pydantic.model_validator(mode="after")
    def _is_coherent(self) -> "Toleration":
        if self.key is None and self.operator != "Exists":
            raise ValueError("the operator Exists where a toleration has no key")
        if self.operator == "Exists" and self.value:
            raise ValueError("no value with the operator Exists")
        if self.tolerationSeconds is not None and self.effect != "NoExecute":
            raise ValueError("tolerationSeconds with the effect NoExecute")
        return self

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that are set, as in a pod's manifest."""
        return self.model_dump(exclude_none=True)


def check_accelerator(name: str | None, count: int | None) -> None:
    """Checks that accelerators have both name and number."""
    if bool(name) != bool(count):
        raise ValueError("accelerator and accelerator_count together")
