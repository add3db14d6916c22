"""What the mean time of a training step is made of, as far as the figures of runs tell."""

from collections.abc import Mapping, Sequence

REST = "compute (the rest)"
"""What is in none of the parts that are known."""
OTHERS = "waiting for other replicas"
"""The part that only replicas have."""

# Each part to the shares that it is the sum of. First what was measured in the training itself: it
# is more certain than what trials have measured.
PARTS = {
    "host (Keras, callbacks)": ("host_share_ratio",),
    OTHERS: ("communication_share_ratio", "load_imbalance_ratio"),
    "waiting for input": ("input_wait_ratio",),
}


def mean_seconds(figures: Mapping[str, float]) -> float | None:
    """Returns the mean step time after warm-up, of which the parts are shares; None if unknown.

    Args:
        figures: of a run, by the catalogue.
    """
    speed, batch_size = figures.get("examples_per_second"), figures.get("global_batch_size")
    return batch_size / speed if speed and batch_size else None


def known_parts(runs: Sequence[Mapping[str, float]]) -> list[str]:
    """Returns the parts that all runs know, and one has; one replica waits for no others.

    Args:
        runs: the figures of each.
    """
    return [
        part
        for part, keys in PARTS.items()
        if any(keys[0] in run for run in runs)
        and all(_share(part, run) is not None for run in runs)
    ]


def share_of(part: str, figures: Mapping[str, float]) -> float:
    """Returns the share of a step that a part has; 0 where it is not known.

    Args:
        part: of `PARTS`.
        figures: of a run.
    """
    return _share(part, figures) or 0.0


def divided(seconds: float, parts: Mapping[str, float]) -> dict[str, float]:
    """Returns a time in the rest and its parts, of which none has more than the others leave.

    Args:
        seconds: all of it.
        parts: to their seconds, those first that are cut last.
    """
    found: dict[str, float] = {}
    for part, own in parts.items():
        found[part] = min(own, seconds - sum(found.values()))
    return {REST: seconds - sum(found.values()), **found}


def _share(part: str, figures: Mapping[str, float]) -> float | None:
    shares = [figures[key] for key in PARTS[part] if key in figures]
    if len(shares) == len(PARTS[part]):
        return sum(shares)
    return 0.0 if part == OTHERS and figures.get("replica_count") == 1 else None
