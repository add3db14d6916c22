"""Whether a method is the user's own, set in a subclass or on the instance."""

import inspect
from typing import Any


def overrides(instance: Any, name: str, base: type) -> bool:
    """Returns whether an object's method is another one than that of a base class.

    Args:
        instance: the object.
        name: of the method.
        base: a class of the object that has it.
    """
    own = inspect.getattr_static(type(instance), name, None)
    return name in vars(instance) or own is not inspect.getattr_static(base, name, None)


def is_of_package(instance: Any, name: str, package: str) -> bool:
    """Returns whether an object's method, if it has it, was written in a package.

    Args:
        instance: the object.
        name: of the method.
        package: a top-level one, e.g. `tf_keras`.
    """
    if name in vars(instance):
        return False
    owner = next((cls for cls in type(instance).__mro__ if name in vars(cls)), None)
    return owner is None or owner.__module__.partition(".")[0] == package
