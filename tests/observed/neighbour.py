# A local user with a delegated directory in each hierarchy, at work against the agent: floods, names, connections.
import os
import select
import socket
import sys
import time

port, given = int(sys.argv[1]), sys.argv[2:]
ID = "3f2a9c0b1d4e5f60718293a4b5c6d7e8f90123456789abcdef0123456789abcd"
# It is in its own directories by then.
sys.stdin.readline()
FORMS = ["docker-{n:04d}%s.scope" % ID[4:], "u\x1b[2J\u202e{n}", "a\"}} 1 x{{y=\"{n}", "{n}-" + "n" * 200, "kubepods{n}.slice",
         "machine-qemu\\x2d{n}\\x2d\\x2fdev\\x2fzero.scope", "slurm_job_{n}", "b{n}\\"]
for n in range(320):
    name = FORMS[n % len(FORMS)].format(n=n)
    if os.fork() == 0:
        for directory in given:
            os.mkdir(directory + "/" + name)
            try:
                with open(directory + "/" + name + "/cgroup.procs", "w") as procs:
                    procs.write("0")
            except OSError:
                pass
        time.sleep(100_000)
if os.fork() == 0:
    n = 0
    while True:
        for directory in given:
            name = directory + "/x%d" % (n % 50)
            os.mkdir(name)
            os.rmdir(name)
            n += 1


def ask(n):
    connection = socket.create_connection(("127.0.0.1", port))
    path = "/metrics" if n % 2 else "/v1/history?limit=10000"
    connection.send(b"GET %s HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n\r\n" % (path.encode(), port))
    watch = select.poll()
    watch.register(connection, select.POLLRDHUP)
    return connection, watch


held = [ask(n) for n in range(100)]
print("ready", flush=True)
while True:
    # Nothing is read. One that the agent has closed is made again.
    for n, (connection, watch) in enumerate(held):
        if watch.poll(0):
            connection.close()
            try:
                held[n] = ask(n)
            except OSError:
                pass
    time.sleep(0.1)
