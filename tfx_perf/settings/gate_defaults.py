"""The rules that hold beside the user's own.

They are what a demanding team would keep on a machine of its own: whatever makes a training
step slower or larger, or its result worse, is refused as soon as it can be told from noise.
Figures that depend on how long a training lasts or on whether trials were made anew are
reported and never refuse. Only the step's time and memory, which every run has, are required.
"""

from collections.abc import Mapping

from tfx_perf.settings.rule import Rule

RULES: Mapping[str, Rule] = {
    "step_time_seconds": Rule(margin=0.03),
    "examples_per_second": Rule(margin=0.03, optional=True),
    # Of one time with the rate; on a CPU, what it is a share of is measured anew in every run.
    "mfu_ratio": Rule(margin=0.03, optional=True, advisory=True),
    "cost_per_million_examples": Rule(margin=0.03),
    # Below 2 GiB 100 MiB: what TensorFlow loads only once may come before the training or in it,
    # and XLA's compiler takes some 50 MiB where another plan is chosen.
    "training_memory_bytes": Rule(margin=0.05, scale=2**31),
    # Beyond that the next larger batch or a fragmented allocator ends the training.
    "peak_memory_share_ratio": Rule(max=0.85, optional=True),
    # Such a training ends some day, whatever its peak is now.
    "memory_leak": Rule(max=0.0, optional=True),
    # Says something only where most of the memory is in use, which it does not know.
    "fragmentation_ratio": Rule(max=0.2, optional=True, advisory=True),
    # Relative to a share of 20 %: two points more.
    "input_wait_ratio": Rule(margin=0.1, scale=0.2, optional=True),
    # Relative to a share of 20 % each: two points more, and four.
    "communication_share_ratio": Rule(margin=0.1, scale=0.2, optional=True),
    "load_imbalance_ratio": Rule(margin=0.2, scale=0.2, optional=True, advisory=True),
    "trace_count": Rule(margin=0.0, budget=1.0, optional=True),
    "oom_count": Rule(margin=0.0, budget=1.0, optional=True),
    "train_loss": Rule(margin=0.05, scale=0.1, optional=True),
    "validation_loss": Rule(margin=0.05, scale=0.1, optional=True),
    # Of the whole machine, sampled.
    "energy_per_example_joules": Rule(margin=0.1, noise=0.03, optional=True),
    # A plan that cannot be compiled is not used: worth a look, no reason to refuse.
    "xla_compile_success_ratio": Rule(min=0.9, optional=True, advisory=True),
    # Trials come before the first step and are made only when something has changed.
    "time_to_first_step_seconds": Rule(margin=0.2, scale=5.0, optional=True, advisory=True),
    # Compiling takes a large share of a short training, and that is no fault.
    "compile_share_ratio": Rule(max=0.05, optional=True, advisory=True),
}

EVALUATION_RULE = Rule(margin=0.02, optional=True)
"""For a metric of Evaluator's output whose name says which way is better."""
