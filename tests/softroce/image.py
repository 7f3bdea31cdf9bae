# SPDX-License-Identifier: Apache-2.0
"""What a guest boots: Debian's stock kernel, and an initramfs of busybox, the modules and init.

The kernel's package is downloaded once and unpacked, never installed.  Everything is kept in a folder of the user's cache,
about 150 MB; it may be removed at any time."""
import contextlib
import fcntl
import glob
import hashlib
import lzma
import os
import re
import shutil
import stat
import struct
import subprocess
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
# crc32_generic: rxe wants a crc32 by name and cannot say that there is none.
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console", "virtio_net", "veth", "sch_netem", "sch_tbf",
           "crc32_generic", "ib_uverbs", "ib_umad", "rdma_ucm", "rdma_rxe")
SBIN = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


class Missing(Exception):
    """Something that is not installed or cannot be had; the text says what to do."""


def program(name, package):
    found = shutil.which(name, path=SBIN)
    if not found:
        raise Missing(f"{name} is not installed (Debian's package {package})")
    return found


def cache():
    """The folder in which kernel and initramfs are kept."""
    path = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "libring", "softroce")
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise Missing(f"there is no place for the guests' kernel: {error}; set XDG_CACHE_HOME") from None
    return path


@contextlib.contextmanager
def alone(folder):
    """One at a time makes what the folder lacks."""
    with open(f"{folder}/lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def download(folder):
    """The package on which linux-image-amd64 depends."""
    known = subprocess.run([program("apt-cache", "apt"), "depends", "linux-image-amd64"], capture_output=True, text=True)
    name = re.search(r"Depends: (linux-image-\d\S*)", known.stdout)
    if not name:
        raise Missing("apt-cache knows no kernel package linux-image-amd64; apt-get update may help")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        done = subprocess.run([program("apt-get", "apt"), "download", name[1]], cwd=place, capture_output=True, text=True)
        found = glob.glob(f"{place}/*.deb")
        if done.returncode or not found:
            raise Missing(f"the package {name[1]} cannot be downloaded: {' '.join(done.stderr.split())[-300:]}")
        os.replace(found[0], f"{folder}/{os.path.basename(found[0])}")


def static_busybox():
    path = program("busybox", "busybox-static")
    with open(path, "rb") as file:
        data = file.read()
    start, = struct.unpack_from("<Q", data, 32)  # ELF's program headers; one of type 3 names a loader of libraries
    size, count = struct.unpack_from("<HH", data, 54)
    if any(struct.unpack_from("<I", data, start + i * size)[0] == 3 for i in range(count)):
        raise Missing(f"{path} needs libraries; Debian's package busybox-static has one that does not")
    return data


def entry(name, mode, data=b""):
    """One file in cpio's form "newc"."""
    path = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + path
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


def archive(files):
    """An initramfs of {name: (mode, data)}; several may follow one another."""
    return b"".join(entry(name, mode, data) for name, (mode, data) in files.items()) + entry("TRAILER!!!", 0)


def module(path):
    with (lzma.open if path.endswith(".xz") else open)(path, "rb") as file:
        return file.read()


def modules(root, version):
    """Files of the modules and of what they need, in the order in which they are loaded."""
    root_of = ["-S", version, "-d", root]
    subprocess.run([program("depmod", "kmod"), "-b", root, version], check=True, capture_output=True)
    files = {}
    for name in MODULES:
        shown = subprocess.run([program("modprobe", "kmod"), *root_of, "-n", "--show-depends", name], capture_output=True,
                               text=True)
        if shown.returncode:
            raise Missing(f"the kernel {version} has no module {name}: {shown.stderr.strip()}")
        for path in re.findall(r"^insmod (\S+)", shown.stdout, re.M):
            files.setdefault(re.sub(r"\.xz$", "", os.path.basename(path)), module(path))
    return files


def initramfs(root, version, busybox, init):
    plain, executable, folder = stat.S_IFREG | 0o644, stat.S_IFREG | 0o755, stat.S_IFDIR | 0o755
    loaded = modules(root, version)
    files = {"bin": (folder, b""), "modules": (folder, b""), "bin/busybox": (executable, busybox),
             "init": (executable, init), "modules/order": (plain, "".join(f"{n}\n" for n in loaded).encode())}
    files.update({f"modules/{name}": (plain, data) for name, data in loaded.items()})
    return archive(files)  # not compressed: unpacking would be emulated


def plain_kernel(packed):
    """The kernel inside a bzImage, since unpacking is emulated too and takes seconds; None when it is packed otherwise."""
    start, length = struct.unpack_from("<II", packed, 0x248)  # of the setup header of the kernel's boot protocol
    start += (packed[0x1f1] + 1) * 512
    with contextlib.suppress(lzma.LZMAError):
        kernel = lzma.LZMADecompressor().decompress(packed[start:start + length])
        return kernel if kernel.startswith(b"\x7fELF") else None
    return None


def unpack(package, folder, version, kernel, initrd, parts):
    with tempfile.TemporaryDirectory(dir=folder) as root:
        subprocess.run([program("dpkg", "dpkg"), "-x", package, root], check=True, capture_output=True)
        if os.path.islink(f"{root}/lib") or not os.path.isdir(f"{root}/lib/modules"):
            os.makedirs(f"{root}/lib", exist_ok=True)
            os.symlink("../usr/lib/modules", f"{root}/lib/modules")
        with open(f"{root}/initrd", "wb") as file:
            file.write(initramfs(root, version, *parts))
        with open(f"{root}/boot/vmlinuz-{version}", "rb") as packed, open(f"{root}/kernel", "wb") as file:
            data = packed.read()
            file.write(plain_kernel(data) or data)
        for old in [*glob.glob(f"{folder}/initrd-*"), *glob.glob(f"{folder}/vmlinu*")]:
            os.unlink(old)
        os.replace(f"{root}/kernel", kernel)
        os.replace(f"{root}/initrd", initrd)


def prepare():
    """Paths of kernel and initramfs, made when they are not there."""
    folder = cache()
    busybox = static_busybox()
    with open(f"{HERE}/init", "rb") as file:
        init = file.read()
    with alone(folder):
        if not glob.glob(f"{folder}/linux-image-*.deb"):
            download(folder)
        package = max(glob.glob(f"{folder}/linux-image-*.deb"), key=os.path.getmtime)
        version = os.path.basename(package).split("_")[0].removeprefix("linux-image-")
        key = hashlib.sha256(b"\0".join([busybox, init, " ".join(MODULES).encode()])).hexdigest()[:12]
        kernel, initrd = f"{folder}/vmlinux-{version}", f"{folder}/initrd-{version}-{key}"
        if not os.path.exists(kernel) or not os.path.exists(initrd):
            unpack(package, folder, version, kernel, initrd, (busybox, init))
    return kernel, initrd
