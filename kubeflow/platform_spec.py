"""The second YAML document: what only Kubernetes knows, in the format of kfp-kubernetes.

The fields are those that every 2.x server reads; later ones, e.g. `secretNameParameter`, are
not known to the earlier servers and say the same.
"""

from collections.abc import Mapping
from typing import Any

from tfx_perf.kubeflow.node_settings import NodeSettings


def platform_spec(executors: Mapping[str, NodeSettings]) -> dict[str, Any] | None:
    """Returns the platform document, None if no container asks for anything.

    Args:
        executors: by the executor's name in the spec.
    """
    configs = {name: config for name, node in executors.items() if (config := _config(node))}
    if not configs:
        return None
    return {"platforms": {"kubernetes": {"deploymentSpec": {"executors": configs}}}}


def _config(node: NodeSettings) -> dict[str, Any]:
    metadata = {"labels": dict(node.pod_labels), "annotations": dict(node.pod_annotations)}
    config = {
        "nodeSelector": {"labels": dict(node.node_selector)} if node.node_selector else None,
        "tolerations": [toleration.fields for toleration in node.tolerations],
        "secretAsEnv": [
            {
                "secretName": source.partition("/")[0],
                "keyToEnv": [{"secretKey": source.partition("/")[2], "envVar": variable}],
            }
            for variable, source in node.secret_environment.items()
        ],
        "secretAsVolume": [
            {"secretName": secret, "mountPath": folder}
            for folder, secret in node.secret_volumes.items()
        ],
        "pvcMount": [
            {"constant": claim, "mountPath": folder} for folder, claim in node.volumes.items()
        ],
        "podMetadata": {key: values for key, values in metadata.items() if values},
        "imagePullPolicy": node.image_pull_policy,
        "imagePullSecret": [{"secretName": secret} for secret in node.image_pull_secrets],
    }
    return {key: value for key, value in config.items() if value}
