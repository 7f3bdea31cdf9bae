# SPDX-License-Identifier: Apache-2.0
"""Under Slurm: srun --mpi=pmix is the PMIx server.

A whole Slurm of two nodes on this machine, in a folder and on ports of its own: munged, slurmctld, two slurmd.  Skips, with
the reason, where the daemons are not installed or do not come up."""
import contextlib
import os
import shutil
import subprocess
import tempfile
import time

import harness
from harness import check, run, skip, tool

EXCHANGE = tool("tests/multi/pmix_exchange")
DAEMONS = ("munged", "slurmctld", "slurmd", "srun", "scontrol")


def free_ports(count):
    import socket
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Slurm:
    def __init__(self, path):
        self.path, self.running = path, []
        if os.geteuid() != 0:
            skip("Slurm's daemons need root")
        os.environ["PATH"] += ":/usr/sbin:/sbin"
        missing = [name for name in DAEMONS if not shutil.which(name)]
        if missing:
            skip(f"not installed: {', '.join(missing)} (Debian: slurm-wlm slurm-wlm-basic-plugins munge)")
        self.env = harness.clean_env(SLURM_CONF=f"{path}/slurm.conf")
        self.env.pop("TMPDIR", None)
        try:
            self.configure()
            self.munge()
            self.slurm()
        except BaseException:
            self.close()
            raise

    def configure(self):
        for name in ("state", "cgroup", "spool-n1", "spool-n2", "tmp-n1", "tmp-n2"):
            os.mkdir(f"{self.path}/{name}")
        host, ports = os.uname().nodename, free_ports(3)
        with open(f"{self.path}/slurm.conf", "w") as f:
            f.write(f"""ClusterName=ring{os.getpid()}
SlurmUser=root
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={self.path}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=pmix
ReturnToService=2
StateSaveLocation={self.path}/state
SlurmdSpoolDir={self.path}/spool-%n
SlurmctldPidFile={self.path}/slurmctld.pid
SlurmdPidFile={self.path}/slurmd-%n.pid
SlurmctldLogFile={self.path}/slurmctld.log
SlurmdLogFile={self.path}/slurmd-%n.log
TmpFS={self.path}/tmp-%n
SlurmdParameters=config_overrides
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
InactiveLimit=0
KillWait=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4
PartitionName=test Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
""")
        with open(f"{self.path}/cgroup.conf", "w") as f:
            f.write(f"CgroupPlugin=cgroup/v1\nIgnoreSystemd=yes\nCgroupAutomount=yes\n"
                    f"CgroupMountpoint={self.path}/cgroup\n")

    def start(self, *argv):
        log = open(f"{self.path}/{os.path.basename(argv[0])}{len(self.running)}.out", "w")
        process = subprocess.Popen(argv, env=self.env, stdout=log, stderr=log, start_new_session=True)
        log.close()
        self.running.append(process)
        return process

    def munge(self):
        with open(f"{self.path}/munge.key", "wb") as f:
            os.fchmod(f.fileno(), 0o400)
            f.write(os.urandom(128))
        self.start("munged", "--foreground", "--force", f"--socket={self.path}/munge.socket",
                   f"--key-file={self.path}/munge.key", f"--pid-file={self.path}/munge.pid",
                   f"--log-file={self.path}/munge.log", f"--seed-file={self.path}/munge.seed", "--num-threads=2")
        self.wait(lambda: os.path.exists(f"{self.path}/munge.socket"), "munged")

    def slurm(self):
        self.start("slurmctld", "-D", "-f", f"{self.path}/slurm.conf")
        for node in ("n1", "n2"):
            self.start("slurmd", "-D", "-N", node, "-f", f"{self.path}/slurm.conf")
        self.wait(lambda: run(["sinfo", "-h", "-o", "%T %D"], env=self.env).out == "idle 2\n", "slurm")

    def wait(self, ready, what):
        for _ in range(100):
            if any(p.poll() is not None for p in self.running):
                break
            if ready():
                return
            time.sleep(0.1)
        logs = [name for name in sorted(os.listdir(self.path)) if name.endswith((".log", ".out"))]
        tail = " | ".join(f"{name}: " + " ".join(open(f"{self.path}/{name}").read().splitlines()[-2:]) for name in logs)
        skip(f"{what} does not come up here: {tail[-600:]}")

    def srun(self, *args):
        return run(["srun", "--mpi=pmix", *args], env=self.env, timeout=60)

    def close(self):
        for _ in range(200): # a step's daemon outlives srun a little
            if "slurmstepd" not in harness.descendants().values():
                break
            time.sleep(0.05)
        for process in reversed(self.running):
            process.terminate()
        for process in self.running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            harness.stop(process)
        subprocess.run(["umount", "-R", "-q", f"{self.path}/cgroup/freezer"], capture_output=True)
        subprocess.run(["umount", "-R", "-q", f"{self.path}/cgroup"], capture_output=True)


@contextlib.contextmanager
def slurm():
    with tempfile.TemporaryDirectory(prefix="case-", ignore_cleanup_errors=True) as path:
        os.chmod(path, 0o755)
        made = Slurm(path)
        try:
            yield made
        finally:
            made.close()


def case_pmix_under_slurm():
    with slurm() as s:
        result = s.srun("-N1", "-n2", "-w", "n1", EXCHANGE, "3")
        want = sorted(f"rank {i} of 2 local {i} of 2 ok" for i in range(2))
        check(result.code == 0 and sorted(result.out.splitlines()) == want, result)
        result = s.srun("-N2", "-n4", "--ntasks-per-node=2", EXCHANGE, "3")
        want = sorted(f"rank {i} of 4 local {i % 2} of 2 ok" for i in range(4))
        check(result.code == 0 and sorted(result.out.splitlines()) == want, result)


if __name__ == "__main__":
    harness.main(globals())
