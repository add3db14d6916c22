"""Settings of earlier versions, by name, and what to do instead."""

_IN_POD_TEMPLATES = {
    "image_pull_policy": "containers[0].imagePullPolicy",
    "cpu": "containers[0].resources.requests.cpu",
    "memory": "containers[0].resources.limits.memory",
    "accelerator": "containers[0].resources.limits",
    "accelerator_count": "containers[0].resources.limits",
    "volumes": "volumes and spec.containers[0].volumeMounts",
    "environment": "containers[0].env",
    "secret_environment": "containers[0].env",
    "service_account": "serviceAccountName",
    "node_selector": "nodeSelector",
    "tolerations": "tolerations",
}
REMOVED: dict[str, str] = {
    **{
        f"distribution.job.{name}": f"Write it in distribution.job.pod_template.spec.{path}, in "
        "Kubernetes' own terms."
        for name, path in _IN_POD_TEMPLATES.items()
    },
    "distribution.collective": "Give tf.distribute.experimental.CommunicationOptions to your own "
    "strategy. The timeout of the workers that OptimizedTrainer starts is "
    "distribution.collective_timeout_seconds.",
    "distribution.cpu_binding": "Start a script with `tfx-perf launch --cpu-binding exclusive`, or "
    "bind processes with taskset or numactl.",
    "input.materialize": "`block_reader` reads compressed files beside the step.",
    "distribution.top_k_ratio": "Set distribution.reduction_dtype: bfloat16 to send less.",
}
