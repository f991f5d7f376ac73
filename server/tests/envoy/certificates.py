"""Certificates that openssl makes, in folders like the mounted Secrets of Kubernetes."""

import os
import pathlib
import shutil
import subprocess

CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class Root:
    """A certificate authority and the certificates that it signs."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.certificate = self.folder / "ca.crt"
        self.key = self.folder / "ca.key"
        self.issued = 0
        openssl("req", "-x509", *CURVE, "-subj", f"/CN={self.folder.name}", "-days", 2,
                "-keyout", self.key, "-out", self.certificate)

    def issue(self, name, trusts=None):
        """Returns a folder with a certificate for a DNS name, its key and the root of its peers.

        The default root of the peers is this one.
        """
        self.issued += 1
        folder = self.folder / str(self.issued)
        folder.mkdir()
        (folder / "names").write_text(f"subjectAltName=DNS:{name}\n")
        openssl("req", *CURVE, "-subj", f"/CN={name}", "-keyout", folder / "tls.key", "-out", folder / "request")
        openssl("x509", "-req", "-in", folder / "request", "-CA", self.certificate, "-CAkey", self.key,
                "-set_serial", self.issued, "-days", 2, "-extfile", folder / "names", "-out", folder / "tls.crt")
        shutil.copy((trusts or self).certificate, folder / "ca.crt")
        return folder


class Secret:
    """Files that are links into a folder, which can be replaced atomically."""

    NAMES = ["tls.crt", "tls.key", "ca.crt"]

    def __init__(self, folder, issued):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.versions = 0
        self.put(issued)
        for name in self.NAMES:
            (self.folder / name).symlink_to(f"..data/{name}")

    def put(self, issued):
        self.versions += 1
        version = self.folder / f"..{self.versions}"
        version.mkdir()
        for name in self.NAMES:
            shutil.copy(issued / name, version)
        link = self.folder / "..new"
        link.symlink_to(version.name)
        os.replace(link, self.folder / "..data")

    def variables(self):
        """Returns the variables of a server that accepts only Envoy as its client."""
        return {
            "GRPC_SERVER_USE_TLS": "true",
            "GRPC_SERVER_TLS_CERT": str(self.folder / "tls.crt"),
            "GRPC_SERVER_TLS_KEY": str(self.folder / "tls.key"),
            "GRPC_CLIENT_TLS_CACERT": str(self.folder / "ca.crt"),
            "GRPC_CLIENT_TLS_SAN": "envoy.example.com",
        }
