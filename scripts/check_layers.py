"""Checks every #include of the product against conf/layers.txt, where the rules and their format stand.

Besides the rules there: a header of ours is included as "folder/name.hpp" from the project's root and exists,
and name.cpp includes its own name.hpp first, which shows that the header needs nothing before it.
"""

import fnmatch
import pathlib
import re
import sys
from typing import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


class Rules:
    def __init__(self, text: str) -> None:
        self.libraries: dict[str, str] = {}  # include prefix -> library
        self.layers: dict[str, set[str]] = {}  # folder -> layers and libraries that it may include
        self.only: list[tuple[str, str, list[str]]] = []  # folder, include prefix, files that may
        self.pure: list[str] = []
        self.impure: set[str] = set()
        for line in text.splitlines():
            words = line.split("#")[0].split()
            match words:
                case []:
                    pass
                case ["library", name, *prefixes]:
                    self.libraries.update(dict.fromkeys(prefixes, name))
                case ["layer", folder, *allowed]:
                    self.layers.setdefault(folder, {folder, "system"}).update(allowed)
                case ["only", folder, prefix, *files]:
                    self.only.append((folder, prefix, files))
                case ["pure", *globs]:
                    self.pure.extend(globs)
                case ["impure", *headers]:
                    self.impure.update(headers)
                case _:
                    sys.exit(f"conf/layers.txt: cannot read the line '{line}'")

    def layer_of(self, path: str) -> str | None:
        """The layer with the longest folder that holds this file."""
        holders = [folder for folder in self.layers if path.startswith(folder + "/")]
        return max(holders, key=len, default=None)

    def library_of(self, include: str) -> str | None:
        return next((name for prefix, name in self.libraries.items() if include.startswith(prefix)), None)


def faults(path: str, text: str, rules: Rules) -> Iterator[str]:
    """One sentence for each include of the file that breaks a rule."""
    layer = rules.layer_of(path)
    stem, _, ending = path.rpartition(".")
    is_pure = any(fnmatch.fnmatch(stem, glob) for glob in rules.pure)
    includes = INCLUDE.findall(text)
    own_header = f"{stem}.hpp"
    if ending == "cpp" and (ROOT / own_header).exists() and (not includes or includes[0][1] != own_header):
        yield f'its own header "{own_header}" must be the first include'
    for quote, include in includes:
        library = rules.library_of(include)
        if quote == '"' and library is None:
            target = rules.layer_of(include)
            if target is None or not (ROOT / include).exists():
                yield f'"{include}" is no header of the project, named from its root'
            elif target not in rules.layers[layer]:
                yield f'{layer} may not include {target} ("{include}")'
        elif library is None and "/" in include:
            yield f"<{include}> belongs to no library that conf/layers.txt names"
        elif library is not None and library not in rules.layers[layer]:
            yield f"{layer} may not include {library} (<{include}>)"
        if is_pure and (library not in (None, "system", "json") or include in rules.impure):
            yield f"a pure file may not include <{include}>"
        for folder, prefix, files in rules.only:
            if include.startswith(prefix) and (folder == "." or path.startswith(folder + "/")):
                if not any(fnmatch.fnmatch(path, glob) for glob in files):
                    yield f"{include} belongs in {' '.join(files)} alone"


def main() -> None:
    rules = Rules((ROOT / "conf/layers.txt").read_text())
    tops = sorted({folder.split("/")[0] for folder in rules.layers})
    files = sorted(path for top in tops for path in (ROOT / top).rglob("*.[ch]pp"))
    found = 0
    for file in files:
        path = file.relative_to(ROOT).as_posix()
        for fault in faults(path, file.read_text(), rules):
            print(f"{path}: {fault}")
            found += 1
    print(f"check_layers: {len(files)} files, {found} faults")
    sys.exit(found > 0)


if __name__ == "__main__":
    main()
