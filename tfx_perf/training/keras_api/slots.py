"""Where optimizers keep their variables for each weight."""

from collections.abc import Sequence
from typing import Any

# Lists of an optimizer that do not hold slots.
_OTHER_LISTS = {"_variables", "_trainable_variables", "_self_unconditional_checkpoint_dependencies"}


def adam_moments(optimizer: Any, variable: Any) -> tuple[Any, Any]:
    """Returns Adam's first-moment and second-moment slots for a variable."""
    index = _index(optimizer, variable)
    return optimizer._momentums[index], optimizer._velocities[index]


def momentum(optimizer: Any, variable: Any) -> Any:
    """Returns SGD's momentum slot for a variable."""
    return optimizer.momentums[_index(optimizer, variable)]


def lists_of(optimizer: Any, variables: Sequence[Any]) -> dict[str, list[Any]]:
    """Returns an optimizer's lists, by name, with an entry or None for each of these variables."""
    return {
        name: values
        for name, values in vars(optimizer).items()
        if isinstance(values, list) and len(values) == len(variables) and name not in _OTHER_LISTS
    }


def by_variable(optimizer: Any, variables: Sequence[Any]) -> list[list[Any]]:
    """Returns the slots of each of these variables, from all lists."""
    lists = lists_of(optimizer, variables).values()
    return [
        [slot for slot in of_variable if slot is not None]
        for of_variable in (zip(*lists, strict=True) if lists else [()] * len(variables))
    ]


def order_of(optimizer: Any, variables: Sequence[Any]) -> dict[str, Any]:
    """Returns the attributes by which a built optimizer finds these variables in this order."""
    places = {optimizer._var_key(variable): place for place, variable in enumerate(variables)}
    known = {
        "_index_dict": places,  # tf_keras
        "_trainable_variables_indices": places,
        "_trainable_variables": list(variables),
    }
    return {name: value for name, value in known.items() if name in vars(optimizer)}


def _index(optimizer: Any, variable: Any) -> int:
    if hasattr(optimizer, "_index_dict"):  # tf_keras
        return optimizer._index_dict[optimizer._var_key(variable)]
    return optimizer._get_variable_index(variable)
