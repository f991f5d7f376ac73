"""Tests the image that ops/image writes. The tests read the image like a container runtime: see .ci/image."""

import hashlib
import json
import os
import pathlib
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest

REPOSITORY = pathlib.Path(__file__).parents[2]
ROOTS = "-----BEGIN CERTIFICATE-----\n"


def elf(machine=62, kinds=(1,)):
    """Returns the headers of a program, without its code."""
    header = struct.pack("<6s10xHHIQQQIHHHHHH", b"\x7fELF\x02\x01", 2, machine, 1, 0, 64, 0, 0, 64, 56, len(kinds), 0, 0, 0)
    return header + b"".join(struct.pack("<I52x", kind) for kind in kinds)


class Image(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tidegate-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_it(self, program, name="image", epoch="1700000000", roots=ROOTS, options=()):
        (self.folder / "program").write_bytes(program)
        (self.folder / "roots").write_text(roots)
        command = [sys.executable, REPOSITORY / "ops/image", self.folder / "program", self.folder / name]
        command += ["--ca", self.folder / "roots", *options]
        env = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
        return subprocess.run(command, env=env, capture_output=True, text=True)

    def written(self, program, **more):
        done = self.run_it(program, **more)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.strip()

    def blob(self, descriptor):
        """Returns the content of a blob, after checking its digest and size."""
        algorithm, _, value = descriptor["digest"].partition(":")
        self.assertEqual(algorithm, "sha256")
        content = (self.folder / "image/layout/blobs/sha256" / value).read_bytes()
        self.assertEqual(hashlib.sha256(content).hexdigest(), value)
        self.assertEqual(len(content), descriptor["size"])
        return content

    def read(self):
        layout = self.folder / "image/layout"
        self.assertEqual(json.loads((layout / "oci-layout").read_text()), {"imageLayoutVersion": "1.0.0"})
        [described] = json.loads((layout / "index.json").read_text())["manifests"]
        manifest = json.loads(self.blob(described))
        [layer] = manifest["layers"]
        return described, manifest, json.loads(self.blob(manifest["config"])), layer

    def test_the_layout_describes_its_content(self):
        for machine, architecture in [(62, "amd64"), (183, "arm64")]:
            with self.subTest(architecture):
                digest = self.written(elf(machine), options=["--tag", "1.2.3"])
                described, manifest, config, layer = self.read()
                self.assertEqual(described["digest"], digest)
                self.assertEqual(described["annotations"]["org.opencontainers.image.ref.name"], "1.2.3")
                self.assertEqual(described["platform"], {"architecture": architecture, "os": "linux"})
                self.assertEqual((config["architecture"], config["os"]), (architecture, "linux"))
                self.assertEqual(config["created"], "2023-11-14T22:13:20Z")
                self.assertEqual(config["rootfs"], {"type": "layers", "diff_ids": [layer["digest"]]})
                # The layer is not compressed, so its digest is the digest of the tar.
                self.assertEqual(layer["mediaType"], "application/vnd.oci.image.layer.v1.tar")
                blobs = {it["digest"][7:] for it in [described, manifest["config"], layer]}
                self.assertEqual(set(os.listdir(self.folder / "image/layout/blobs/sha256")), blobs)

    def test_the_image_has_the_files_that_a_container_needs(self):
        program = elf()
        self.written(program)
        _, _, config, layer = self.read()
        (self.folder / "layer.tar").write_bytes(self.blob(layer))
        with tarfile.open(self.folder / "layer.tar") as tar:
            entries = {it.name: it for it in tar}
            self.assertEqual(len(entries), len(tar.getmembers()))

            def content(path):
                return tar.extractfile(path).read()

            self.assertEqual(content("bin/tidegate-server"), program)
            self.assertEqual(content("etc/ssl/certs/ca-certificates.crt").decode(), ROOTS)
            self.assertIn(b"\nnonroot:x:65532:65532:", content("etc/passwd"))
            self.assertIn(b"\nnonroot:x:65532:", content("etc/group"))
        self.assertEqual(entries["bin/tidegate-server"].mode, 0o755)
        self.assertEqual(entries["bin/ratelimit"].linkname, "tidegate-server")
        self.assertTrue(entries["srv/runtime_data/current/config"].isdir())
        for path, entry in entries.items():
            self.assertEqual((entry.uid, entry.gid, entry.uname, entry.mtime), (0, 0, "", 1700000000), path)
            parent = path.rpartition("/")[0]
            self.assertTrue(not parent or list(entries).index(parent) < list(entries).index(path), path)
        self.assertEqual(config["config"]["User"], "65532:65532")
        self.assertEqual(config["config"]["Cmd"], ["/bin/tidegate-server"])
        # With an entry point, `command: /bin/ratelimit` of a Compose file would be its argument.
        self.assertNotIn("Entrypoint", config["config"])

    def test_the_deployment_has_the_user_and_the_program_of_the_image(self):
        self.written(elf())
        _, _, config, _ = self.read()
        text = (REPOSITORY / "ops/kubernetes/deployment.yaml").read_text()
        user, group = config["config"]["User"].split(":")
        [program] = config["config"]["Cmd"]
        for line in [f"runAsUser: {user}", f"runAsGroup: {group}", f'command: ["{program}"]', "image: tidegate-server:0.1.0"]:
            self.assertIn(f" {line}\n", text)

    def test_the_archive_is_the_layout_and_docker_can_load_it(self):
        self.written(elf())
        _, manifest, _, layer = self.read()
        with tarfile.open(self.folder / "image/image.tar") as tar:
            files = {it.name: tar.extractfile(it).read() for it in tar if it.isfile()}
        layout = self.folder / "image/layout"
        found = {str(it.relative_to(layout)): it.read_bytes() for it in layout.rglob("*") if it.is_file()}
        self.assertEqual(files, found)
        [loaded] = json.loads(files["manifest.json"])
        paths = [f"blobs/sha256/{it['digest'][7:]}" for it in [manifest["config"], layer]]
        self.assertEqual([loaded["Config"], *loaded["Layers"]], paths)
        self.assertEqual(loaded["RepoTags"], ["tidegate-server:0.1.0"])

    def test_the_same_inputs_give_the_same_bytes(self):
        first = self.written(elf(), name="first")
        self.assertEqual(self.written(elf(), name="second"), first)
        archives = [(self.folder / it / "image.tar").read_bytes() for it in ["first", "second"]]
        self.assertEqual(archives[0], archives[1])
        self.assertNotEqual(self.written(elf(), epoch="1700000001"), first)
        self.assertNotEqual(self.written(elf() + b"x"), first)
        self.assertNotEqual(self.written(elf(), roots=ROOTS + "x"), first)

    def test_a_program_that_cannot_run_in_the_image_is_refused(self):
        for program, why in [
            (elf(kinds=[1, 3]), "it is not static; build it with ops/static"),
            (elf(machine=8), "its machine is 8; it must be one of {62: 'amd64', 183: 'arm64'}"),
            (b"#!/bin/sh\n", "it is not a 64-bit little-endian program for Linux"),
            (elf()[:66], "it is incomplete"),
            (elf()[:10], "it is incomplete"),
        ]:
            done = self.run_it(program)
            expected = f"ops/image: {self.folder / 'program'}: {why}\n"
            self.assertEqual((done.returncode, done.stderr), (1, expected))
            self.assertFalse((self.folder / "image").exists())
        done = self.run_it(elf(), roots="")
        self.assertEqual(done.stderr, f"ops/image: {self.folder / 'roots'}: the file contains no certificate in PEM format\n")
        done = self.run_it(elf(), epoch="-1")
        self.assertEqual(done.stderr, "ops/image: SOURCE_DATE_EPOCH is `-1`; it must be a number of seconds since 1970\n")


if __name__ == "__main__":
    unittest.main()
