"""Has trials try the same plans on a busy machine as on an idle one."""

from tfx_perf.training.tuning import equivalence, families


def allow_long_calls(set_attribute=setattr):
    """Keeps slow steps from shortening the calls below the configured lengths."""
    set_attribute(families, "_LONG_CALL_SECONDS", 10.0)


def try_the_same_plans(set_attribute=setattr):
    """Also times plans that the first look estimates as far too slow."""
    allow_long_calls(set_attribute)
    set_attribute(equivalence, "_HOPELESS", 1e9)
