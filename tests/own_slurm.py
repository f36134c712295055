"""A SLURM of two small nodes on this machine, for as long as it is needed."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import psutil

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel")
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
LINK = Path("/etc/slurm/slurm.conf")
"""Where SLURM looks: Snakemake's jobs lose the variable that names another file."""
NODES = 2
CONF = """
ClusterName={name}
SlurmctldHost=localhost
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
MailProg=/bin/true
SwitchType=switch/none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0,sched_interval=2
InactiveLimit=0
KillWait=5
MinJobAge=3600
NodeName=n[1-{nodes}] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=2 {shape}
PartitionName=main Nodes=ALL Default=YES DefMemPerCPU=200 MaxTime=INFINITE State=UP
"""
SHAPE = "Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=6000 State=UNKNOWN"


def why_not():
    """Return why there can be no SLURM here; nothing if there can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if missing:
        packages = "slurmctld slurmd slurm-client munge"
        return f"{missing[0]} is not installed: apt-get install {packages}"
    if os.geteuid() != 0:
        return "only root can start a SLURM"
    if LINK.exists():
        return f"{LINK} belongs to another SLURM"
    return None


def run(*command, check=True, **options):
    """Run a command of SLURM; return what it prints."""
    env = {**os.environ, "PATH": PATH}
    out = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=env, check=False, **options
    )
    assert not check or out.returncode == 0, f"{command}: {out.stderr}"
    return out.stdout


def free_ports(count):
    """Return the first of so many neighbouring ports that nobody listens on."""
    for first in range(26817, 60000, 100):
        try:
            for port in range(first, first + count):
                with socket.socket() as trial:
                    trial.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    message = "no free ports"
    raise RuntimeError(message)


@contextmanager
def own_slurm():
    """Start munged, slurmctld and the nodes' slurmd; end them and their jobs afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)
    port = free_ports(NODES + 1)
    places = {"first": port + 1, "last": port + NODES, "nodes": NODES, "shape": SHAPE}
    conf, key = folder / "slurm.conf", folder / "munge.key"
    conf.write_text(CONF.format(name=f"own{port}", port=port, folder=folder, **places))
    key.touch(0o600)
    key.write_bytes(os.urandom(1024))
    for name in ("state", *(f"n{k + 1}" for k in range(NODES))):
        (folder / name).mkdir()
    LINK.parent.mkdir(exist_ok=True)
    LINK.unlink(missing_ok=True)  # one whose target is gone
    LINK.symlink_to(conf)
    files = {"key-file": key} | {
        f"{name}-file": folder / f"munged.{name}" for name in ("pid", "log", "seed")
    }
    options = [f"--{name}={path}" for name, path in files.items()]
    try:
        run("munged", f"--socket={folder}/munge.socket", *options)
        run("slurmctld")
        for k in range(NODES):
            run("slurmd", "-N", f"n{k + 1}")
        wait(lambda: run("sinfo", "-hN", "-o%T", check=False).split() == NODES * ["idle"], 60)
        yield
    finally:
        run("scancel", "--user=root", check=False)
        end = time.monotonic() + 15
        while run("squeue", "-h", check=False) and time.monotonic() < end:
            time.sleep(0.2)
        for file in sorted(folder.glob("*.pid"), reverse=True):
            stop(file)
        LINK.unlink()
        shutil.rmtree(folder, ignore_errors=True)


def stop(pid_file):
    """End the daemon that wrote this file."""
    try:
        process = psutil.Process(int(pid_file.read_text()))
        process.terminate()
        process.wait(10)
    except (OSError, ValueError, psutil.NoSuchProcess):
        return
    except psutil.TimeoutExpired:
        process.kill()


def wait(condition, seconds):
    """Wait until the condition holds."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {seconds} s in vain"
        time.sleep(0.2)
    return found
