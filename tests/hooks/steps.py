"""Runs a program, and kills it right before its Nth change of the file system at certain paths.

    steps.py run PROGRAM ARGUMENT...

STEPS_AT    which change, from 1; 0: none, they are only written down
STEPS_LOG   a file: `2 mkdirat /the/path`, a line for each change that is about to be made
STEPS_IN    a regular expression, which a part of the path matches

The kernel stops each thread of the program that is about to make such a call, and asks a second process, which lets it
go on or ends the program. What the program starts is never counted: it outlives the program, and so does the second
process, until the last of them has ended.

Source: seccomp(2), seccomp_unotify(2) (Linux 5.5 for SECCOMP_USER_NOTIF_FLAG_CONTINUE).
"""

import ctypes
import fcntl
import os
import platform
import re
import select
import signal
import socket
import struct
import subprocess
import sys

# Number of seccomp(2), architecture for the kernel, and of each call: its number, and where its path is. "d0p1": the
# path of argument 1, below the directory of descriptor 0; "p0": a path; "f0": a descriptor.
MACHINES = {
    "x86_64": (317, 0xC000003E, {
        "openat": (257, "d0p1"), "mkdir": (83, "p0"), "mkdirat": (258, "d0p1"), "rename": (82, "p1"),
        "renameat": (264, "d2p3"), "renameat2": (316, "d2p3"), "unlink": (87, "p0"), "unlinkat": (263, "d0p1"),
        "rmdir": (84, "p0"), "symlink": (88, "p1"), "symlinkat": (266, "d1p2"), "link": (86, "p1"),
        "linkat": (265, "d2p3"), "chown": (92, "p0"), "lchown": (94, "p0"), "fchown": (93, "f0"),
        "fchownat": (260, "d0p1"), "chmod": (90, "p0"), "fchmod": (91, "f0"), "fchmodat": (268, "d0p1"),
        "mount": (165, "p1"), "umount2": (166, "p0"), "move_mount": (429, "d2p3"), "mknodat": (259, "d0p1"),
        "setxattr": (188, "p0"), "fsetxattr": (190, "f0"), "ftruncate": (77, "f0"), "fsync": (74, "f0"),
        "fdatasync": (75, "f0"), "syncfs": (306, "f0"),
    }),
    "aarch64": (277, 0xC00000B7, {
        "openat": (56, "d0p1"), "mkdirat": (34, "d0p1"), "renameat": (38, "d2p3"), "renameat2": (276, "d2p3"),
        "unlinkat": (35, "d0p1"), "symlinkat": (36, "d1p2"), "linkat": (37, "d2p3"), "fchown": (55, "f0"),
        "fchownat": (54, "d0p1"), "fchmod": (52, "f0"), "fchmodat": (53, "d0p1"), "mount": (40, "p1"),
        "umount2": (39, "p0"), "move_mount": (429, "d2p3"), "mknodat": (33, "d0p1"), "setxattr": (5, "p0"),
        "fsetxattr": (7, "f0"), "ftruncate": (46, "f0"), "fsync": (82, "f0"), "fdatasync": (83, "f0"),
        "syncfs": (267, "f0"),
    }),
}
SECCOMP, ARCHITECTURE, CALLS = MACHINES[platform.machine()]
NAMES = {number: (name, where) for name, (number, where) in CALLS.items()}

ALLOW, NOTIFY = 0x7FFF0000, 0x7FC00000
RECEIVE, SEND, CONTINUE = 0xC0502100, 0xC0182101, 1
AT_FDCWD = 0xFFFFFF9C


def listener():
    """Installs the filter for this thread and what it executes."""
    load, equal, any_of, give = 0x20, 0x15, 0x45, 0x06
    plain = [number for name, (number, _) in CALLS.items() if name != "openat"]
    # The last four: open to create, notify, allow.
    code = [(load, 0, 0, 4), (equal, 0, len(plain) + 5, ARCHITECTURE), (load, 0, 0, 0)]
    code += [(equal, len(plain) - at + 2, 0, number) for at, number in enumerate(plain)]
    code += [(equal, 0, 3, CALLS["openat"][0]), (load, 0, 0, 32), (any_of, 0, 1, os.O_CREAT)]
    code += [(give, 0, 0, NOTIFY), (give, 0, 0, ALLOW)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
    described = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(program)))
    libc = ctypes.CDLL(None, use_errno=True)
    # SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER
    descriptor = libc.syscall(SECCOMP, 1, 8, described)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return descriptor


def text(pid, address):
    """The path that ends with a zero byte."""
    found = b""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        while b"\0" not in found and len(found) < 4096:
            # Never over the end of a page: the next one may not be there.
            length = min(256, 4096 - (address + len(found)) % 4096)
            memory.seek(address + len(found))
            found += memory.read(length)
    return os.fsdecode(found.split(b"\0")[0])


def path_of(pid, where, arguments):
    def descriptor(number):
        number &= 0xFFFFFFFF
        return os.readlink(f"/proc/{pid}/cwd" if number == AT_FDCWD else f"/proc/{pid}/fd/{number}")

    if where[0] == "f":
        return descriptor(arguments[int(where[1])])
    path = text(pid, arguments[int(where[-1])])
    if not path.startswith("/"):
        above = arguments[int(where[1])] if where[0] == "d" else AT_FDCWD
        return os.path.join(descriptor(above), path).rstrip("/")
    parts = path.split("/")
    if parts[1:4] in (["proc", "self", "fd"], ["proc", "thread-self", "fd"]):
        return os.path.join(descriptor(int(parts[4])), *parts[5:])
    return path


def process_of(thread):
    with open(f"/proc/{thread}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("Tgid:"))


def trace(channel):
    received, (calls,), _, _ = socket.recv_fds(channel, 65536, 1)
    pid, at, log, pattern = received.decode().split("\0")
    channel.close()
    steps = 0
    poll = select.poll()
    poll.register(calls, select.POLLIN)
    while True:
        if any(event & select.POLLHUP for _, event in poll.poll()):
            return
        notice = bytearray(80)
        try:
            fcntl.ioctl(calls, RECEIVE, notice, True)
        except OSError:
            # It was killed in the meantime.
            continue
        identity, thread, _, number, _, _, *arguments = struct.unpack("QIIiIQ6Q", notice)
        try:
            name, where = NAMES[number]
            path = path_of(thread, where, arguments)
            if process_of(thread) == int(pid) and re.search(pattern, path):
                steps += 1
                with open(log, "a") as lines:
                    lines.write(f"{steps} {name} {path}\n")
                if steps == int(at):
                    os.kill(int(pid), signal.SIGKILL)
                    continue
        except (OSError, StopIteration):
            # It was killed in the meantime, or the path is none.
            pass
        try:
            fcntl.ioctl(calls, SEND, struct.pack("QqiI", identity, 0, 0, CONTINUE))
        except OSError:
            pass


def run(program, arguments):
    own, other = socket.socketpair()
    command = [sys.executable, "-I", "-B", os.path.abspath(__file__), "trace", str(other.fileno())]
    # Nothing of the program's environment, by which a test finds what it left; and no child of the program's.
    detached = subprocess.run(
        ["/bin/sh", "-c", '"$@" >/dev/null 2>&1 </dev/null &', "sh"] + command,
        pass_fds=[other.fileno()], env={}, cwd="/", start_new_session=True,
    )
    detached.check_returncode()
    other.close()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STEPS_")}
    facts = [str(os.getpid())] + [os.environ[f"STEPS_{name}"] for name in ("AT", "LOG", "IN")]
    descriptor = listener()
    socket.send_fds(own, ["\0".join(facts).encode()], [descriptor])
    own.close()
    os.close(descriptor)
    os.execve(program, [program] + arguments, environment)


if sys.argv[1] == "trace":
    trace(socket.socket(fileno=int(sys.argv[2])))
else:
    run(sys.argv[2], sys.argv[3:])
