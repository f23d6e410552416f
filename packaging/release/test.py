#!/usr/bin/env python3
"""Tests of packaging/install.sh and of the scripts in packaging/release: `python3 packaging/release/test.py`.

Takes seconds: servers are on 127.0.0.1, archives contain a small script in place of quack. Called by `.ci/run`.
"""

import hashlib
import http.server
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import threading
import unittest

PACKAGING = pathlib.Path(__file__).resolve().parent.parent
INSTALLER = (PACKAGING / "install.sh").read_bytes()
TARGETS = [
    f"{machine}-{system}"
    for machine in ["x86_64", "aarch64"]
    for system in ["unknown-linux-musl", "apple-darwin"]
]


class Requests(http.server.SimpleHTTPRequestHandler):
    """Serves files, keeps the paths of requests, and cuts the files whose names are in `cut`."""

    def do_GET(self):
        self.server.paths.append(self.path)
        name = self.path.rsplit("/", 1)[1]
        if name not in self.server.cut:
            return super().do_GET()
        content = pathlib.Path(self.translate_path(self.path)).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2])

    def log_message(self, *_):
        pass


def write_archive(directory, version, target, program=None):
    """Writes an archive with the layout of packaging/release.sh, and returns its line of SHA256SUMS."""
    program = program or f"#!/bin/sh\necho 'quack {version}'\n"
    name = f"quackd-{version}-{target}"
    source = directory / "quack.source"
    source.write_text(program)
    source.chmod(0o755)
    with tarfile.open(directory / f"{name}.tar.gz", "w:gz") as archive:
        archive.add(source, f"{name}/bin/quack")
    source.unlink()
    digest = hashlib.sha256((directory / f"{name}.tar.gz").read_bytes()).hexdigest()
    return f"{digest}  {name}.tar.gz\n"


class Temporary(unittest.TestCase):
    """A test with a directory whose path has a space."""

    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="quackd release "))
        self.addCleanup(shutil.rmtree, self.work)


class Installer(Temporary):
    shells = [shell for shell in ["dash", "bash", "sh"] if shutil.which(shell)]

    def setUp(self):
        super().setUp()
        self.latest = self.work / "web/latest/download"
        self.old = self.work / "web/download/v1.2.3"
        for directory, version in [(self.latest, "1.3.0"), (self.old, "1.2.3")]:
            directory.mkdir(parents=True)
            sums = "".join(write_archive(directory, version, target) for target in TARGETS)
            (directory / "SHA256SUMS").write_text(sums)
        handler = lambda *words: Requests(*words, directory=self.work / "web")
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.paths, self.server.cut = [], []
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.bin = self.work / "home/.local/bin"
        self.fake = self.work / "fake"
        self.fake.mkdir()
        self.machine("Linux", "x86_64")

    def machine(self, system, processor):
        uname = self.fake / "uname"
        uname.write_text(f'#!/bin/sh\n[ "$1" = -s ] && echo {system} || echo {processor}\n')
        uname.chmod(0o755)

    def run_in(self, shell, *options, script=INSTALLER, url=None):
        environment = {
            "HOME": str(self.work / "home"),
            "PATH": f"{self.fake}:{os.environ['PATH']}",
            "TMPDIR": str(self.work),
        }
        command = [shell, "-s", "--", "--from", url or self.url, *options]
        return subprocess.run(
            command, input=script, env=environment, capture_output=True, timeout=300
        )

    def refused(self, text, *options, **more):
        for shell in self.shells:
            done = self.run_in(shell, *options, **more)
            self.assertEqual(done.returncode, 1, (shell, done))
            self.assertIn(text, done.stderr.decode())
            self.assertEqual(done.stderr.count(b"install.sh: "), 1, done.stderr)
            self.assertFalse(self.bin.exists())
            self.assertEqual(list(self.work.glob("tmp.*")), [])

    def test_installs_replaces_and_only_verifies(self):
        for shell in self.shells:
            directory = self.work / f"to {shell}"
            done = self.run_in(shell, "--dry-run", "--to", str(directory))
            self.assertEqual(done.returncode, 0, done)
            self.assertIn(b"would install", done.stdout)
            self.assertFalse(directory.exists())
            for option, version in [(["--version", "v1.2.3"], "1.2.3"), ([], "1.3.0")]:
                done = self.run_in(shell, "--to", str(directory), *option)
                self.assertEqual(done.returncode, 0, done)
                self.assertEqual([file.name for file in directory.iterdir()], ["quack"])
                said = subprocess.check_output([directory / "quack"], text=True)
                self.assertEqual(said, f"quack {version}\n")
        self.assertEqual(self.run_in("sh").returncode, 0)
        self.assertTrue(os.access(self.bin / "quack", os.X_OK))

    def test_every_platform_gets_its_archive(self):
        for system, processor, target in [
            ("Linux", "aarch64", "aarch64-unknown-linux-musl"),
            ("Darwin", "arm64", "aarch64-apple-darwin"),
            ("Darwin", "x86_64", "x86_64-apple-darwin"),
        ]:
            self.machine(system, processor)
            done = self.run_in("sh", "--dry-run")
            self.assertIn(f"quackd-1.3.0-{target}.tar.gz", done.stdout.decode())
        self.machine("Linux", "riscv64")
        self.refused("no release for Linux on riscv64")

    def test_a_changed_or_cut_archive_is_not_installed(self):
        name = "quackd-1.3.0-x86_64-unknown-linux-musl.tar.gz"
        write_archive(self.latest, "1.3.0", TARGETS[0], "#!/bin/sh\ntouch /tmp/owned\n")
        self.refused(f"wrong SHA-256 sum of {name}")
        self.server.cut = [name]
        self.refused("cannot download")
        self.server.cut = []
        (self.latest / name).unlink()
        self.refused("cannot download")

    def test_a_release_without_a_sum_is_refused(self):
        sums = self.latest / "SHA256SUMS"
        lines = sums.read_text().splitlines(keepends=True)
        sums.write_text("".join(lines[1:]))
        self.refused("has no archive for x86_64-unknown-linux-musl")
        sums.write_text("".join([lines[0], lines[0].replace("1.3.0", "1.3.1")]))
        self.refused("has several archives")
        sums.unlink()
        self.refused("cannot download")

    def test_wrong_options_and_addresses_are_refused(self):
        self.refused("unknown option --fast", "--fast")
        self.refused("--to needs a value", "--to")
        self.refused("is not a version", "--version", "../1")
        self.refused("does not begin with https://", url="http://example.org/releases")
        self.refused("this copy is not from a release", url="@URL@")
        self.assertEqual(self.server.paths, [])

    def test_a_script_that_was_cut_runs_nothing(self):
        whole = INSTALLER.replace(b"@URL@", self.url.encode()).rstrip()
        end = len(whole)
        for length in [*range(0, end - 60, 211), *range(end - 60, end)]:
            for shell in self.shells:
                self.run_in(shell, script=whole[:length])
        self.assertEqual(self.server.paths, [])
        self.assertFalse(self.bin.exists())


class Scripts(Temporary):
    """The scripts of a maintainer, in a small workspace."""

    def setUp(self):
        super().setUp()
        shutil.copytree(PACKAGING, self.work / "packaging")
        root = '[workspace]\nmembers = ["a", "b"]\n[workspace.package]\nversion = "0.1.0"\n'
        root += '[workspace.dependencies]\nb = { path = "b", version = "=0.1.0" }\n'
        self.write("Cargo.toml", root)
        package = '[package]\nname = "%s"\nversion.workspace = true\nedition = "2021"\n'
        self.write("a/Cargo.toml", package % "a" + "[dependencies]\nb.workspace = true\n")
        self.write("b/Cargo.toml", package % "b")
        fuzz = '[package]\nname = "fuzz"\nedition = "2021"\n[workspace]\n[dependencies]\n'
        self.write("fuzz/Cargo.toml", fuzz + 'b = { path = "../b" }\n')
        for name in ["a", "b", "fuzz"]:
            self.write(f"{name}/src/lib.rs", "")
        self.changelog("### Added\n\n- One.\n")
        for name in [".", "fuzz"]:
            command = ["cargo", "generate-lockfile", "--offline", "--quiet"]
            subprocess.run(command, cwd=self.work / name, check=True)

    def write(self, name, text):
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def changelog(self, unreleased, released="", head="Nothing has been released yet."):
        text = f"# Changelog\n\nForm. {head}\n\n## Unreleased\n\n{unreleased}\n{released}"
        self.write("CHANGELOG.md", text)

    def script(self, name, *words, **variables):
        return subprocess.run(
            ["bash", self.work / "packaging/release" / name, *map(str, words)],
            env={**os.environ, "SOURCE_DATE_EPOCH": "1767225600", **variables},
            capture_output=True,
            text=True,
        )

    def test_headings_decide_the_version(self):
        released = "## 0.1.0 - 2025-12-01\n\n### Added\n\n- All.\n"
        for current, heading, expected in [
            ("0.1.0", "Fixed", "0.1.1"),
            ("0.1.0", "Security", "0.1.1"),
            ("0.1.0", "Added", "0.2.0"),
            ("0.1.0", "Breaking", "0.2.0"),
            ("1.2.3", "Fixed", "1.2.4"),
            ("1.2.3", "Changed", "1.3.0"),
            ("1.2.3", "Removed", "2.0.0"),
        ]:
            manifest = (self.work / "Cargo.toml").read_text()
            self.write("Cargo.toml", manifest.replace("0.1.0", current))
            self.changelog(f"### {heading}\n\n- One.\n", released)
            self.assertEqual(self.script("version.sh").stdout, f"{expected}\n")
            self.write("Cargo.toml", manifest)
        self.changelog("", released)
        self.assertIn("has no line", self.script("version.sh").stderr)

    def test_a_release_sets_all_versions_and_dates_the_section(self):
        self.assertEqual(self.script("version.sh").stdout, "0.1.0\n")
        self.assertNotEqual(self.script("version.sh", "--check", "v0.1.0").returncode, 0)
        self.assertEqual(self.script("version.sh", "--set").stdout, "0.1.0\n")
        text = (self.work / "CHANGELOG.md").read_text()
        self.assertIn("Form.\n\n## Unreleased\n\n## 0.1.0 - 2026-01-01\n\n### Added\n", text)
        self.assertEqual(self.script("version.sh", "--check", "v0.1.0").stdout, "0.1.0\n")
        self.assertNotEqual(self.script("version.sh", "--check", "v0.1.1").returncode, 0)
        self.assertNotEqual(self.script("version.sh", "--set", "0.1.0").returncode, 0)

        self.write("CHANGELOG.md", text.replace("## 0.1.0", "### Added\n\n- Two.\n\n## 0.1.0"))
        done = self.script("version.sh", "--set")
        self.assertEqual(done.stdout, "0.2.0\n", done)
        self.assertEqual((self.work / "Cargo.toml").read_text().count("0.2.0"), 2)
        for name, count in [(".", 2), ("fuzz", 1)]:
            lock = (self.work / name / "Cargo.lock").read_text()
            self.assertEqual(lock.count('version = "0.2.0"'), count, lock)
            command = ["cargo", "metadata", "--locked", "--offline", "--format-version", "1"]
            subprocess.run(command, cwd=self.work / name, check=True, capture_output=True)
        notes = self.script("version.sh", "--notes", "0.2.0").stdout
        self.assertEqual(notes.split(), ["###", "Added", "-", "Two."])

    def test_a_directory_of_archives_is_completed_and_checked(self):
        self.script("version.sh", "--set")
        out = self.work / "out"
        out.mkdir()
        url = "https://example.org/me/quackd/releases"
        (out / "quackd-0.1.0.tar.gz").write_text("sources")
        (out / "quackd-0.0.9-x86_64-unknown-linux-musl.tar.gz").write_text("old")
        for target in TARGETS[:-1]:
            write_archive(out, "0.1.0", target)
            (out / f"quackd-0.1.0-{target}.cdx.json").write_text("{}")
        assemble = ["assemble.sh", out, "0.1.0", url]
        done = self.script(*assemble)
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("left out mise.toml", done.stderr)
        publish = self.script("publish.sh", "v0.1.0", out, DRY_RUN="1")
        self.assertIn("aarch64-apple-darwin.tar.gz is missing", publish.stderr)

        write_archive(out, "0.1.0", TARGETS[-1])
        (out / f"quackd-0.1.0-{TARGETS[-1]}.cdx.json").write_text("{}")
        self.script(*assemble)
        sums = dict(reversed(line.split()) for line in (out / "SHA256SUMS").read_text().splitlines())
        recipes = ["PKGBUILD", "SRCINFO", "install.sh", "mise.toml", "quackd.rb"]
        self.assertEqual(len(sums), 1 + 2 * len(TARGETS) + len(recipes))
        for name in recipes:
            text = (out / name).read_text()
            self.assertNotRegex(text.replace("@*)", ""), "@[A-Z]", name)
            self.assertIn(url, text)
        publish = self.script("publish.sh", "v0.1.0", out, DRY_RUN="1")
        self.assertEqual(publish.returncode, 0, publish)
        self.assertEqual(publish.stdout.count(f"{out}/"), len(sums) + 1)

        # The two files of AUR name the same versions, addresses and sums.
        values = "pkgver pkgrel url arch[@] license[@] provides[@] conflicts[@] source_x86_64[@] "
        values += "source_aarch64[@] sha256sums_x86_64[@] sha256sums_aarch64[@]"
        print_values = ". ./PKGBUILD; for name in $0; do printf '%s\\n' \"${!name}\"; done"
        command = ["bash", "-euc", print_values, values]
        said = subprocess.check_output(command, cwd=out, text=True).splitlines()
        for value in said:
            self.assertIn(f" = {value}\n", (out / "SRCINFO").read_text())
        self.assertIn(sums["quackd-0.1.0-aarch64-unknown-linux-musl.tar.gz"], said)
        if shutil.which("ruby"):
            subprocess.run(["ruby", "-c", out / "quackd.rb"], check=True, capture_output=True)
        (out / "quackd.rb").write_text("changed")
        publish = self.script("publish.sh", "v0.1.0", out, DRY_RUN="1")
        self.assertNotEqual(publish.returncode, 0)


if __name__ == "__main__":
    unittest.main()
