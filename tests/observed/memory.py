# Gives itself an environment that is a mapping of 64 GiB ("large"), or one whose pages never arrive ("silent").
# Source: prctl(2) PR_SET_MM_MAP, which needs no right; userfaultfd(2).
import ctypes, fcntl, os, struct, sys, time

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.sbrk.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]
size = 64 << 30 if sys.argv[1] == "large" else 1 << 20
at = libc.mmap(None, size, 3, 0x4022, -1, 0)
if sys.argv[1] == "silent":
    fd = libc.syscall(323, 0o2000000)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    fcntl.ioctl(fd, 0xC018AA3F, bytearray(struct.pack("QQQ", 0xAA, 0, 0)))
    fcntl.ioctl(fd, 0xC020AA00, bytearray(struct.pack("QQQQ", at, size, 1, 0)))
stat = [0, 0] + open("/proc/self/stat").read().rsplit(")", 1)[1].split()
field = lambda n: int(stat[n - 1])
places = [field(n) for n in (26, 27, 45, 46, 47)] + [libc.sbrk(0)] + [field(n) for n in (28, 48, 49)] + [at, at + size]
places = struct.pack("11QQIi", *places, 0, 0, -1)
buffer = ctypes.create_string_buffer(places, len(places))
assert libc.prctl(35, 14, ctypes.addressof(buffer), len(places), 0) == 0, os.strerror(ctypes.get_errno())
print("ready", flush=True)
time.sleep(1000)
