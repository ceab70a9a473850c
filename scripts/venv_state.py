"""Says which pinned packages a virtual environment still needs, so that a half-made one can be finished.

Run with the environment's own Python. Prints one `name==version` line for each package of the requirements
file that is missing, of another version, or damaged (a file that its RECORD lists is missing or has another
size, as after an interrupted installation or a full disk). With --repair it first removes the metadata of
damaged packages, without which pip would take them for installed.
"""

import argparse
import importlib.metadata as metadata
import pathlib
import re
import shutil
import sys


def pins(requirements: pathlib.Path) -> dict[str, str]:
    """Package name -> version, of a file that holds `name==version` lines and comments."""
    lines = (line.split("#")[0].strip() for line in requirements.read_text().splitlines())
    return dict(line.split("==") for line in lines if line)


def is_intact(distribution: metadata.Distribution) -> bool:
    """Whether every file of the package is there with the size that its RECORD gives."""
    if not distribution.read_text("RECORD"):
        return False
    for file in distribution.files or []:
        path = pathlib.Path(file.locate())
        if not path.is_file() or (file.size is not None and path.stat().st_size != file.size):
            return False
    return True


def forget(name: str) -> None:
    """Removes the package's metadata folders; its files are overwritten by the next installation."""
    spelling = re.sub(r"[-_.]+", "_", name).lower()
    for site in map(pathlib.Path, sys.path):
        if site.name != "site-packages" or not site.is_relative_to(sys.prefix):
            continue
        for folder in site.glob("*.dist-info"):
            if re.sub(r"[-_.]+", "_", folder.name.split("-")[0]).lower() == spelling:
                shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("requirements", type=pathlib.Path)
    parser.add_argument("--repair", action="store_true", help="remove the metadata of damaged packages")
    arguments = parser.parse_args()
    for name, version in pins(arguments.requirements).items():
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            print(f"{name}=={version}")
            continue
        intact = is_intact(distribution)
        if not intact and arguments.repair:
            forget(name)
        if not intact or distribution.version != version:
            print(f"{name}=={version}")


if __name__ == "__main__":
    main()
