#!/usr/bin/env python3
"""Prints the licences of everything that is linked into `quack`: a list of packages, then each text once.

    packaging/licences.py TARGET > THIRD-PARTY-LICENCES.txt

Asks `cargo metadata` which packages are linked for TARGET (no test or build dependency is), and reads the
texts from their sources, where cargo has put them. Called by packaging/release.sh. A package that names a
licence and holds no text is listed with a note; one without a licence is an error.
"""

import json
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
# What files with licences are called, in capitals or not.
TEXT = re.compile(r"^(un)?licen[cs]es?\b|^licen[cs]e[-_.]|^copying|^copyright|^notice", re.IGNORECASE)
RULE = "=" * 100


def metadata(target):
    """What cargo says of the workspace, for one target."""
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--locked", "--format-version", "1"]
    output = subprocess.run(
        [*command, "--filter-platform", target], cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    return json.loads(output.stdout)


def linked(data):
    """The packages that `quack` consists of, ours left out, by name and version."""
    packages = {package["id"]: package for package in data["packages"]}
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    ours = set(data["workspace_members"])
    first = next(id for id in ours if packages[id]["name"] == "quackd")
    reached, waiting = set(), [first]
    while waiting:
        here = waiting.pop()
        if here in reached:
            continue
        reached.add(here)
        for dependency in nodes[here]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    found = [packages[id] for id in reached - ours]
    return sorted(found, key=lambda package: (package["name"], package["version"]))


def texts(package):
    """The licence texts of a package: pairs of a file's name and its content."""
    directory = os.path.dirname(package["manifest_path"])
    names = {name for name in os.listdir(directory) if TEXT.match(name)}
    if package["license_file"]:
        names.add(package["license_file"])
    for name in sorted(names):
        path = os.path.join(directory, name)
        below = sorted(os.listdir(path)) if os.path.isdir(path) else [""]
        for part in below:
            file = os.path.join(path, part) if part else path
            if os.path.isfile(file) and not file.endswith(".rs"):
                with open(file, encoding="utf-8", errors="replace") as text:
                    content = "\n".join(line.rstrip() for line in text.read().splitlines())
                yield os.path.join(name, part) if part else name, content.strip("\n")


def standard_text(package):
    """The text of a licence that is the same for every package, but for the authors. Some packages leave it out."""
    licence = package["license"] or ""
    name = next((name for name in ["Apache-2.0", "MIT"] if name in licence), None)
    if name is None:
        return []
    name = {"Apache-2.0": "LICENSE-APACHE", "MIT": "LICENSE-MIT"}[name]
    with open(os.path.join(os.path.dirname(__file__), "..", name), encoding="utf-8") as text:
        content = text.read().strip("\n")
    authors = ", ".join(package["authors"]) or f"the authors of {package['name']}"
    return [(name, re.sub(r"(?m)^Copyright .*$", f"Copyright (c) {authors}", content, count=1))]


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: licences.py TARGET")
    packages = linked(metadata(sys.argv[1]))
    if not packages:
        sys.exit("licences.py: cargo metadata names no package")
    users = {}
    print("What is linked into quack beside its own code, and under which licences.")
    print("The standard library of Rust, MIT OR Apache-2.0, is part of it as well.\n")
    for package in packages:
        label = f"{package['name']} {package['version']}"
        licence = package["license"]
        if not licence and not package["license_file"]:
            sys.exit(f"licences.py: {label} names no licence")
        found = list(texts(package)) or standard_text(package)
        for _, content in found:
            users.setdefault(content, []).append(label)
        note = "" if found else " (its sources hold no text)"
        print(f"{label}: {licence or 'see its text'}{note}")
    for content, labels in sorted(users.items(), key=lambda item: (item[1], item[0])):
        print(f"\n{RULE}\n{', '.join(sorted(set(labels)))}\n{RULE}\n\n{content}")


if __name__ == "__main__":
    main()
