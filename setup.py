"""Which folders are the package: the examples lie beside it in the source, then within it."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["fedpareto*"]), "fedpareto.examples"],
    package_dir={"fedpareto.examples": "examples"},
    package_data={
        "fedpareto": ["py.typed", "report/*.html", "report/*.css", "report/*.js"],
        "fedpareto.examples": [
            "hospitals_public.csv",
            *(
                f"{folder}*.{kind}"
                for folder in ("", "papers/", "starter/")
                for kind in ("toml", "py", "md", "ipynb")
            ),
        ],
    },
)
