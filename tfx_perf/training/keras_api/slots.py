"""Where optimizers keep what they remember of each variable."""

from typing import Any


def adam_moments(optimizer: Any, variable: Any) -> tuple[Any, Any]:
    """Returns Adam's variables of the first and of the second moment for a variable."""
    index = _index(optimizer, variable)
    return optimizer._momentums[index], optimizer._velocities[index]


def momentum(optimizer: Any, variable: Any) -> Any:
    """Returns the variable of SGD's momentum for a variable."""
    return optimizer.momentums[_index(optimizer, variable)]


def _index(optimizer: Any, variable: Any) -> int:
    """Returns the variable's place in the optimizer's lists."""
    if hasattr(optimizer, "_index_dict"):  # tf_keras
        return optimizer._index_dict[optimizer._var_key(variable)]
    return optimizer._get_variable_index(variable)
