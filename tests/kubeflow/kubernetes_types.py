"""Errors of a manifest according to the types of Kubernetes' Python client."""

from kubernetes import client


def problems(value, type_name, where=""):
    """Yields keys that a type of Kubernetes' API does not have, and required ones left out."""
    if type_name.startswith("list["):
        for number, each in enumerate(value):
            yield from problems(each, type_name[5:-1], f"{where}[{number}]")
    elif hasattr(client, type_name):
        model = getattr(client, type_name)
        keys = {key: name for name, key in model.attribute_map.items()}
        yield from (f"{where}.{key}" for key in value.keys() - keys.keys())
        present = value.keys() & keys.keys()
        for key in present:
            yield from problems(value[key], model.openapi_types[keys[key]], f"{where}.{key}")
        try:
            model(**{keys[key]: value[key] for key in present})
        except ValueError as error:
            yield f"{where}: {error}"
