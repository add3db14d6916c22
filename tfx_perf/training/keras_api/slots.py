"""Where optimizers keep what they remember of each variable."""

from collections.abc import Sequence
from typing import Any

# Of an optimizer, that are not of slots.
_OTHER_LISTS = frozenset(
    {"_variables", "_trainable_variables", "_self_unconditional_checkpoint_dependencies"}
)


def adam_moments(optimizer: Any, variable: Any) -> tuple[Any, Any]:
    """Returns Adam's variables of the first and of the second moment for a variable."""
    index = _index(optimizer, variable)
    return optimizer._momentums[index], optimizer._velocities[index]


def momentum(optimizer: Any, variable: Any) -> Any:
    """Returns the variable of SGD's momentum for a variable."""
    return optimizer.momentums[_index(optimizer, variable)]


def all_of(optimizer: Any, variables: Sequence[Any]) -> list[list[Any]]:
    """Returns all that an optimizer keeps of each variable.

    Args:
        optimizer: built; what is inside of it is not looked into.
        variables: that it was built for, in that order.
    """
    found: list[list[Any]] = [[] for _ in variables]
    for name, kept in vars(optimizer).items():
        # Keras' optimizers have a list for each kind, in which some variables may have none.
        if isinstance(kept, list) and len(kept) == len(variables) and name not in _OTHER_LISTS:
            for own, slot in zip(found, kept, strict=True):
                own.extend([] if slot is None else [slot])
    return found


def _index(optimizer: Any, variable: Any) -> int:
    """Returns the variable's place in the optimizer's lists."""
    if hasattr(optimizer, "_index_dict"):  # tf_keras
        return optimizer._index_dict[optimizer._var_key(variable)]
    return optimizer._get_variable_index(variable)
